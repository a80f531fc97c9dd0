// The flags of `weft train` and their help. This file checks single values, no combinations.
#include "train/cli/train_flags.h"

#include <fmt/format.h>

#include <cmath>
#include <iomanip>
#include <sstream>
#include <string>
#include <string_view>

#include "train/cli/options.h"
#include "train/pipeline/schedule.h"

namespace weft {
namespace {

// Before a check of the sign, which lets "nan" pass; what is no number at all is left to that.
CLI::Validator finite_number() {
  return CLI::Validator(
      [](const std::string& text) {
        double value = 0;
        const bool bad = CLI::detail::lexical_cast(text, value) && !std::isfinite(value);
        return bad ? fmt::format("{} is not a finite number", text) : std::string();
      },
      "");
}

}  // namespace

int evaluates_every(const TrainFlags& flags) {
  constexpr int kLeast = 20;
  if (flags.eval_every >= 0) return flags.eval_every;
  if (flags.steps == 0) return 1;
  if (flags.steps < kLeast) return flags.eval_data.empty() ? 0 : flags.steps;
  return std::max(kLeast, flags.steps / 10);
}

std::string what_ranks_share(const TrainFlags& flags) {
  std::ostringstream all;
  all << std::boolalpha << "--backend " << flags.backend << " --type " << flags.type << " --save "
      << std::quoted(flags.save.empty() ? "nowhere" : flags.save) << " --save-every "
      << flags.save_every << " --resume " << flags.resume << " --sample " << flags.sample
      << " --eval-every " << evaluates_every(flags) << " --eval-data "
      << (flags.eval_data.empty() ? "none" : "given") << " --trace "
      << (flags.trace.empty() ? "nowhere" : "somewhere");
  return all.str();
}

void add_checkpoint_flags(CLI::App& command, CheckpointFlags& flags, const char* save_every_about) {
  const OptionAdder add(command);
  section(command, "Checkpoints and restarts");
  add("--save", flags.save, "folder of checkpoints");
  add("--save-every", flags.save_every, save_every_about, CLI::PositiveNumber);
  add("--keep", flags.keep, "checkpoints that are kept", CLI::PositiveNumber);
  command.add_flag("--resume", flags.resume, "go on from the newest checkpoint, of any layout");
  add.unset(
      "--restart", flags.restart.restarts,
      "how often a job that failed starts again; with --elastic also how many ranks are replaced",
      CLI::NonNegativeNumber);
  command.add_flag(
      "--elastic", flags.restart.elastic,
      "go on with fewer ranks after one died, without a restart where that is possible");
  add("--kill", flags.restart.kill, "rank:step, for tests: that rank kills itself then",
      CLI::Validator(
          [](const std::string& text) {
            const auto colon = text.find(':');
            const auto digits = [](std::string_view t) {
              return !t.empty() && t.find_first_not_of("0123456789") == t.npos;
            };
            const std::string_view all = text;
            return colon != text.npos && digits(all.substr(0, colon)) &&
                           digits(all.substr(colon + 1))
                       ? std::string()
                       : text + " is not rank:step, as in 3:8";
          },
          "RANK:STEP"));
}

void add_train_flags(CLI::App& command, TrainFlags& flags) {
  auto& o = flags.options;
  o.rate = {.peak = 3e-3, .warm_up = 10};
  command.option_defaults()->multi_option_policy(CLI::MultiOptionPolicy::TakeLast);
  add_job_flags(command, flags.job);
  const OptionAdder add(command);
  const auto positive = CLI::PositiveNumber, at_least_0 = CLI::NonNegativeNumber;
  const auto finite = finite_number();
  section(command, "Model and data");
  add("--model", flags.network,
      "gpt; ffn: three layers of 6, 4 and 2 neurons on three servers of two GPUs (takes --steps)",
      CLI::IsMember({"gpt", "ffn"}));
  add("--data", flags.data,
      "file of the training text (default: the GPL-3 of Debian, or the documentation)");
  add.unset("--eval-every", flags.eval_every,
            "steps between evaluations on a batch never trained on; 0: none (default: 20, or a "
            "tenth of the run)",
            at_least_0);
  add("--eval-data", flags.eval_data, "text to evaluate (default: the last twentieth of --data)");
  add("--backend", flags.backend, "cpu, cuda, or auto: cuda where there is a GPU",
      CLI::IsMember({"cpu", "cuda", "auto"}));
  add("--type", flags.type,
      "float (default), double, bf16 (default with cuda) or fp16; 16 bits with fp32 master weights",
      CLI::IsMember({"float", "double", "bf16", "fp16"}));
  add("--steps", flags.steps,
      "steps to train; 0: evaluate and --sample the newest checkpoint in --save, of any layout, on "
      "the ranks of --tp",
      at_least_0);
  add("--batch", o.batch, "samples per step, over all ranks", positive);
  add("--micro-batch", o.micro_batch, "samples of a forward and backward pass", positive);
  add("--vocabulary", o.model.vocabulary, "size of the vocabulary, at least 256",
      CLI::Range(256, 1 << 20));
  add("--positions", o.model.positions, "positions of a sample, each a byte",
      CLI::Range(1, 1 << 24));
  add("--width", o.model.width, "numbers per position (hidden size), a multiple of --heads",
      CLI::Range(1, 1 << 20));
  add("--heads", o.model.heads, "heads of attention, a multiple of --tp", CLI::Range(1, 1 << 20));
  add("--layers", o.model.layers, "blocks of the model; each stage of a pipeline needs one",
      CLI::Range(1, 10000));
  command.add_flag("--untied{false}", o.model.tied,
                   "do not tie the head to the embedding: it has a matrix of its own");
  section(command, "Layout");
  add.unset("--dp", o.mesh.data, "data parallel ranks (default: the rest)", positive);
  add("--tp", o.mesh.tensor, "tensor parallel ranks", positive);
  add("--pp", o.mesh.pipeline, "pipeline parallel ranks", positive);
  add("--algo", o.mesh.algorithm, "algorithm of the collectives: auto or a name");
  section(command, "Pipeline, memory and order");
  add("--sync", flags.sync,
      "how replicas add up gradients: allreduce; ps: the first is a parameter server; ps-async: "
      "the "
      "first only serves, without waiting",
      CLI::IsMember({"allreduce", "ps", "ps-async"}));
  add("--staleness", flags.staleness, "steps a worker may be ahead (ps-async)", at_least_0);
  add("--compress", o.compress,
      "quantise gradients between replicas: int8 or fp8, a byte each, with error feedback; none",
      CLI::IsMember({"none", "int8", "fp8"}));
  add("--straggler-us", o.straggler_us,
      "the last rank sleeps this long in each step, in us, for tests", at_least_0);
  add("--schedule", o.schedule, "schedule of the pipeline",
      CLI::IsMember(train::pipeline_schedule_names()));
  add("--chunks", o.chunks, "stages of a pipeline rank (interleaved)", positive);
  add("--zero", o.zero,
      "ZeRO stage; 1: optimizer state split over replicas; 2: gradients too; 3: weights too",
      CLI::Range(0, 3));
  add("--shard-group", o.mesh.shard, "replicas that split the state among them (MiCS; 0: all)",
      at_least_0);
  add("--bucket-bytes", o.bucket_bytes, "bytes of gradients that travel together", positive);
  command.add_flag("--no-overlap{false}", o.overlap, "gradients travel after the backward pass");
  command.add_flag("--deterministic", o.deterministic, "the same bits for every --dp and --zero");
  add("--offload", o.offload,
      "folder to which activations and optimizer state are offloaded; host: from the GPU to "
      "the host's memory");
  command.add_flag(
      "--recompute", o.recompute,
      "activation checkpointing: keep the inputs of blocks, and compute the rest again");
  command.add_flag(
      "--sequence-parallel", o.sequence_parallel,
      "sequence parallelism: split norms and residuals over the tensor parallel ranks");
  section(command, "Tensor parallelism");
  add("--embed", o.embed,
      "embedding and head of tensor parallel ranks: a part on each, or all on the first, which "
      "broadcasts",
      CLI::IsMember(train::kEmbeds));
  add("--tp-style", flags.tp_style, "megatron, or seed: gathers Q, K and results",
      CLI::IsMember({"megatron", "seed"}));
  section(command, "Optimizer");
  add("--optimizer", flags.optimizer, "optimizer: adamw or sgd", CLI::IsMember({"adamw", "sgd"}));
  auto* lr = add("--lr", o.rate.peak, "learning rate", finite, positive);
  add.unset("--lr-per-256", flags.lr_per_256,
            "learning rate per 256 samples of --batch (linear scaling), instead of --lr", finite,
            positive)
      ->excludes(lr);
  add("--warm-up", o.rate.warm_up, "steps until the full learning rate", at_least_0);
  add("--clip", o.clip, "largest norm of the gradient; 0: no limit", finite, at_least_0);
  add("--seed", o.seed, "seed of the first weights and of the samples");
  section(command, "Output");
  add("--log", flags.log, "file to which JSON lines are added, one per step");
  add("--trace", flags.trace,
      "trace of every rank: communication, F, B, W and samples, for Perfetto; Chakra's .et");
  add("--sample", flags.sample,
      "bytes to write at the end, with a KV cache, on the processors of the first ranks of --tp",
      at_least_0);
  command.add_flag("--no-cache{false}", flags.cache,
                   "write the sample without a KV cache: each byte computes all positions");
  add.unset("--prompt", flags.prompt, "what the sample begins with (default: a new line)");
  add("--temperature", flags.temperature, "temperature of the sample; lower: likelier bytes",
      finite, positive);
  add_checkpoint_flags(command, flags, "steps between checkpoints");
  section(command, "Numbers");
  add.unset("--loss-scale", o.loss_scale, "first scale of dynamic loss scaling", finite,
            at_least_0);
  add.unset("--peak-tflops", flags.peak_tflops,
            "peak of a GPU in TFLOP/s, for MFU (default: dense bf16 by its name)", finite,
            positive);
}

}  // namespace weft
