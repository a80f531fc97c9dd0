// The flags of `weft train` and their help. This file checks single values, no combinations.
#include "train/cli/train_flags.h"

#include <fmt/format.h>

#include <cmath>
#include <iomanip>
#include <sstream>
#include <string>
#include <string_view>

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
  section(command, "Checkpoints and restarts");
  command.add_option("--save", flags.save, "folder of checkpoints");
  command.add_option("--save-every", flags.save_every, save_every_about)
      ->check(CLI::PositiveNumber)
      ->capture_default_str();
  command.add_option("--keep", flags.keep, "checkpoints that are kept")
      ->check(CLI::PositiveNumber)
      ->capture_default_str();
  command.add_flag("--resume", flags.resume, "go on from the newest checkpoint, of any layout");
  command
      .add_option("--restart", flags.restart.restarts,
                  "start a job that failed again, so many times")
      ->check(CLI::NonNegativeNumber);
  command.add_flag("--elastic", flags.restart.elastic,
                   "start a job that failed again with a smaller --dp, as long as there is one");
  command
      .add_option("--kill", flags.restart.kill, "rank:step, for tests: that rank kills itself then")
      ->check(CLI::Validator(
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
  const auto positive = CLI::PositiveNumber;
  section(command, "Model and data");
  command.add_option("--data", flags.data, "text to train on (default: one that is there)");
  command
      .add_option("--eval-every", flags.eval_every,
                  "steps between evaluations on a batch never trained on; 0: none (default: 20, or "
                  "a tenth of the run)")
      ->check(CLI::NonNegativeNumber);
  command.add_option("--eval-data", flags.eval_data,
                     "text to evaluate (default: the last twentieth of --data)");
  command.add_option("--backend", flags.backend, "cpu, cuda, or auto: cuda where there is a GPU")
      ->check(CLI::IsMember({"cpu", "cuda", "auto"}))
      ->capture_default_str();
  command
      .add_option("--type", flags.type,
                  "float (default) or double; with cuda also bf16 (default there) and fp16")
      ->check(CLI::IsMember({"float", "double", "bf16", "fp16"}));
  command
      .add_option("--steps", flags.steps,
                  "steps to train; 0: evaluate and --sample the newest checkpoint in --save")
      ->check(CLI::NonNegativeNumber)
      ->capture_default_str();
  command.add_option("--batch", o.batch, "samples per step, over all ranks")
      ->check(positive)
      ->capture_default_str();
  command.add_option("--micro-batch", o.micro_batch, "samples that pass the model together")
      ->check(positive)
      ->capture_default_str();
  command.add_option("--vocabulary", o.model.vocabulary, "words of the vocabulary, at least 256")
      ->check(CLI::Range(256, 1 << 20))
      ->capture_default_str();
  command.add_option("--positions", o.model.positions, "positions of a sample, each a byte")
      ->check(CLI::Range(1, 1 << 24))
      ->capture_default_str();
  command
      .add_option("--width", o.model.width,
                  "numbers per position (hidden size), a multiple of --heads")
      ->check(CLI::Range(1, 1 << 20))
      ->capture_default_str();
  command.add_option("--heads", o.model.heads, "heads of attention, a multiple of --tp")
      ->check(CLI::Range(1, 1 << 20))
      ->capture_default_str();
  command
      .add_option("--layers", o.model.layers,
                  "blocks of the model; each stage of a pipeline needs one")
      ->check(CLI::Range(1, 10000))
      ->capture_default_str();
  command.add_flag("--untied{false}", o.model.tied,
                   "give the output a matrix of its own, not the embedding's");
  section(command, "Layout");
  command.add_option("--dp", o.mesh.data, "data parallel ranks (default: the rest)")
      ->check(positive);
  command.add_option("--tp", o.mesh.tensor, "tensor parallel ranks")
      ->check(positive)
      ->capture_default_str();
  command.add_option("--pp", o.mesh.pipeline, "pipeline parallel ranks")
      ->check(positive)
      ->capture_default_str();
  command
      .add_option("--order", o.mesh.order, "axes of the layout, from neighbours to the farthest")
      ->capture_default_str();
  command.add_option("--algo", o.mesh.algorithm, "algorithm of the collectives: auto or a name")
      ->capture_default_str();
  section(command, "Pipeline, memory and order");
  command
      .add_option("--sync", flags.sync,
                  "how replicas add up gradients: allreduce; ps: the first is a parameter server")
      ->check(CLI::IsMember({"allreduce", "ps"}))
      ->capture_default_str();
  command
      .add_option("--straggler-us", o.straggler_us,
                  "the last rank sleeps this long in each step, in us, for tests")
      ->check(CLI::NonNegativeNumber)
      ->capture_default_str();
  command.add_option("--schedule", o.schedule, "schedule of the pipeline")
      ->check(CLI::IsMember(train::pipeline_schedule_names()))
      ->capture_default_str();
  command.add_option("--chunks", o.chunks, "stages of a pipeline rank (interleaved)")
      ->check(positive)
      ->capture_default_str();
  command.add_option("--zero", o.zero, "ZeRO stage. 0: all state on every replica; 1, 2, 3: split")
      ->check(CLI::Range(0, 3))
      ->capture_default_str();
  command.add_flag("--half-sums", o.half_sums,
                   "sum gradients of 16 bits in 16 bits, not in fp32: less memory, less to send");
  command.add_option("--shard-group", o.mesh.shard, "replicas that split the state (0: all)")
      ->check(CLI::NonNegativeNumber)
      ->capture_default_str();
  command.add_option("--bucket-bytes", o.bucket_bytes, "bytes of gradients that travel together")
      ->check(positive)
      ->capture_default_str();
  command.add_flag("--no-overlap{false}", o.overlap, "gradients travel after the backward pass");
  command.add_flag("--deterministic", o.deterministic, "the same bits for every --dp and --zero");
  command.add_option("--offload", o.offload,
                     "folder where activations and optimizer state wait, not in memory; host: in "
                     "the host's memory, not the GPU's");
  command.add_flag("--recompute", o.recompute, "keep the inputs of blocks only");
  command.add_flag("--sequence-parallel", o.sequence_parallel, "split rows between TP regions");
  section(command, "Tensor parallelism");
  command
      .add_option("--embed", o.embed,
                  "embedding and head of tensor parallel ranks: a part on each, all on each, or "
                  "all on the first, which broadcasts")
      ->check(CLI::IsMember(train::kEmbeds))
      ->capture_default_str();
  command.add_option("--tp-style", flags.tp_style, "megatron, or seed: gathers Q, K and results")
      ->check(CLI::IsMember({"megatron", "seed"}))
      ->capture_default_str();
  section(command, "Optimizer");
  command.add_option("--optimizer", flags.optimizer, "optimizer: adamw or sgd")
      ->check(CLI::IsMember({"adamw", "sgd"}))
      ->capture_default_str();
  auto* lr = command.add_option("--lr", o.rate.peak, "learning rate")
                 ->check(finite_number())
                 ->check(positive)
                 ->capture_default_str();
  command
      .add_option("--lr-per-256", flags.lr_per_256,
                  "learning rate per 256 samples of --batch (linear scaling), instead of --lr")
      ->check(finite_number())
      ->check(positive)
      ->excludes(lr);
  command.add_option("--warm-up", o.rate.warm_up, "steps until the full learning rate")
      ->check(CLI::NonNegativeNumber)
      ->capture_default_str();
  command.add_option("--clip", o.clip, "largest norm of the gradient; 0: no limit")
      ->check(finite_number())
      ->check(CLI::NonNegativeNumber)
      ->capture_default_str();
  command.add_option("--seed", o.seed, "seed of the first weights and of the samples")
      ->capture_default_str();
  section(command, "Output");
  command.add_option("--log", flags.log, "file to which JSON lines are added, one per step");
  command.add_option("--trace", flags.trace,
                     "trace of every rank's communication, for Perfetto and as Chakra's .et");
  command
      .add_option("--sample", flags.sample,
                  "bytes to write at the end, each a forward pass on rank 0's processor")
      ->check(CLI::NonNegativeNumber)
      ->capture_default_str();
  command.add_option("--prompt", flags.prompt, "what the sample begins with (default: a new line)");
  command
      .add_option("--temperature", flags.temperature,
                  "temperature of the sample; lower: likelier bytes")
      ->check(finite_number())
      ->check(positive)
      ->capture_default_str();
  add_checkpoint_flags(command, flags, "steps between checkpoints");
  section(command, "Numbers");
  command.add_option("--loss-scale", o.loss_scale, "dynamic loss scaling that begins with this")
      ->check(finite_number())
      ->check(CLI::NonNegativeNumber);
  command
      .add_option("--peak-tflops", flags.peak_tflops,
                  "peak of a GPU in TFLOP/s, for MFU (default: dense bf16 by its name)")
      ->check(finite_number())
      ->check(positive);
}

}  // namespace weft
