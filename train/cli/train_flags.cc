// The rows of `weft train`: flags, their help, and their checks. Starts nothing.
#include "train/cli/train_flags.h"

#include <fmt/format.h>

#include <cmath>
#include <regex>
#include <string>

#include "train/cli/options.h"
#include "train/cli/train_checks.h"
#include "train/pipeline/schedule.h"

namespace weft {

int evaluates_every(const TrainFlags& flags) {
  constexpr int kLeast = 20;
  if (flags.eval_every >= 0) return flags.eval_every;
  if (flags.steps == 0) return 1;
  if (flags.steps < kLeast) return flags.eval_data.empty() ? 0 : flags.steps;
  return std::max(kLeast, flags.steps / 10);
}

namespace {

// Runs before the sign check, which accepts "nan" and rejects text that is not a number.
CLI::Validator finite_number() {
  return CLI::Validator(
      [](const std::string& text) {
        double value = 0;
        const bool bad = CLI::detail::lexical_cast(text, value) && !std::isfinite(value);
        return bad ? fmt::format("{} is not a finite number", text) : std::string();
      },
      "");
}

const char* const kNoReplica =
    "with --dp 1: no gradients travel between replicas; leave it out, or say --dp 2 or more";
const char* const kNoSample =
    "with --sample 0: no text is written; say how many bytes, as in --sample 200";
const char* const kNoSave = "without --save: nothing is saved; say --save FOLDER, or leave it out";
const char* const kNoFolder = "needs checkpoints: pass --save FOLDER";

void checkpoint_rows(const OptionTable& add, TrainFlags& flags) {
  const bool nowhere = flags.save.empty();
  add("--save", flags.save, "folder of checkpoints").agreed(nowhere ? "nowhere" : flags.save);
  add("--save-every", flags.save_every, "steps between checkpoints", CLI::PositiveNumber)
      .agreed()
      .refused(nowhere, kNoSave);
  add("--keep", flags.keep, "checkpoints that are kept", CLI::PositiveNumber)
      .refused(nowhere, kNoSave);
  add.flag("--resume", flags.resume, "go on from the newest checkpoint, of any layout")
      .agreed()
      .refused(nowhere, kNoFolder);
  add.unset("--restart", flags.restart.restarts,
            "how often a job that failed starts again; with --elastic also how many ranks are "
            "replaced",
            CLI::NonNegativeNumber)
      .refused(nowhere && flags.restart.restarts > 0, kNoFolder);
  add.flag("--elastic", flags.restart.elastic,
           "go on with fewer ranks after one died, without a restart where that is possible")
      .refused(nowhere, kNoFolder);
  add("--kill", flags.restart.kill, "rank:step, for tests: that rank kills itself then",
      CLI::Validator(
          [](const std::string& text) {
            const bool good = std::regex_match(text, std::regex("[0-9]+:[0-9]+"));
            return good ? std::string() : text + " is not rank:step, as in 3:8";
          },
          "RANK:STEP"));
}

void train_rows(CLI::App& command, const OptionTable& add, TrainFlags& flags) {
  auto& o = flags.options;
  const auto& mesh = o.mesh;
  // The user did not choose the layout of a job that became smaller (--elastic).
  const bool chosen = !restarted(), alone = chosen && mesh.data == 1;
  const bool async = flags.sync == "ps-async";
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
            at_least_0)
      .agreed(std::to_string(evaluates_every(flags)))
      .refused(
          flags.steps > 0 && flags.eval_every > flags.steps,
          fmt::format("with --steps {}: no step would be evaluated; say a smaller number, or 0",
                      flags.steps));
  add("--eval-data", flags.eval_data, "text to evaluate (default: the last twentieth of --data)")
      .agreed(flags.eval_data.empty() ? "none" : "given")
      .refused(flags.eval_every == 0,
               "with --eval-every 0: nothing is evaluated; leave one of them out");
  add("--backend", flags.backend, "cpu, cuda, or auto: cuda where there is a GPU",
      CLI::IsMember({"cpu", "cuda", "auto"}))
      .agreed();
  add("--type", flags.type,
      "float (default), double, bf16 (default with cuda) or fp16; 16 bits with fp32 master weights",
      CLI::IsMember({"float", "double", "bf16", "fp16"}))
      .agreed();
  add("--steps", flags.steps,
      "steps to train; 0: evaluate and --sample the newest checkpoint in --save, of any layout, on "
      "the ranks of --tp",
      at_least_0)
      .refused(flags.steps == 0 && flags.save.empty(),
               ": nothing is trained; pass --save FOLDER with a checkpoint to evaluate, or more "
               "steps");
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
  add.flag("--untied{false}", o.model.tied,
           "do not tie the head to the embedding: it has a matrix of its own");
  section(command, "Layout");
  add.unset("--dp", o.mesh.data, "data parallel ranks (default: the rest)", positive);
  add("--tp", o.mesh.tensor, "tensor parallel ranks", positive);
  add("--pp", o.mesh.pipeline, "pipeline parallel ranks", positive);
  add_algorithm(add, o.mesh.algorithm, chosen && mesh.ranks() == 1);
  section(command, "Pipeline, memory and order");
  add_sync(add, flags.sync, flags.staleness, o.straggler_us)
      .refused(alone && flags.sync == "ps", kNoReplica)
      .refused(alone && async, "with one rank: the server is a rank of its own; say -N 2 or more")
      .refused(
          async && (flags.backend != "cpu" || (flags.type != "float" && flags.type != "double")),
          ": on the processor in float or double; leave --type out");
  add("--compress", o.compress,
      "quantise gradients between replicas: int8 or fp8, a byte each, with error feedback; none",
      CLI::IsMember({"none", "int8", "fp8"}))
      .refused(alone && o.compress != "none", kNoReplica);
  add("--schedule", o.schedule, "schedule of the pipeline",
      CLI::IsMember(train::pipeline_schedule_names()))
      .refused(mesh.pipeline == 1,
               "with --pp 1: there is no pipeline; leave it out, or say --pp 2 or more");
  add("--chunks", o.chunks, "stages of a pipeline rank (interleaved)", positive);
  add("--zero", o.zero,
      "ZeRO stage; 1: optimizer state split over replicas; 2: gradients too; 3: weights too",
      CLI::Range(0, 3));
  add("--shard-group", o.mesh.shard, "replicas that split the state among them (MiCS; 0: all)",
      at_least_0)
      .refused(o.zero == 0 && mesh.shard > 1,
               "with --zero 0: nothing is split; say --zero 1, 2 or 3, or leave it out")
      .refused(o.zero > 0 && mesh.shard == 1,
               fmt::format("with --zero {}: groups of one rank split nothing; say --zero 0, or "
                           "larger groups",
                           o.zero));
  add("--bucket-bytes", o.bucket_bytes, "bytes of gradients that travel together", positive)
      .refused(alone, kNoReplica)
      .refused(o.zero >= 2,
               fmt::format("with --zero {}: gradients leave unit by unit, not in buckets; leave it "
                           "out, or say --zero 0 or 1",
                           o.zero))
      .refused(o.deterministic,
               "with --deterministic: gradients leave in the order of micro-batches, not in "
               "buckets; leave one of them out");
  add.flag("--no-overlap{false}", o.overlap, "gradients travel after the backward pass")
      .refused(alone, kNoReplica)
      .refused(o.deterministic && o.zero < 3,
               "with --deterministic: that decides when gradients travel; leave one of them out");
  add.flag("--deterministic", o.deterministic, "the same bits for every --dp and --zero");
  add("--offload", o.offload,
      "folder to which activations and optimizer state are offloaded; host: from the GPU to "
      "the host's memory");
  add.flag("--recompute", o.recompute,
           "activation checkpointing: keep the inputs of blocks, and compute the rest again");
  add.flag("--sequence-parallel", o.sequence_parallel,
           "sequence parallelism: split norms and residuals over the tensor parallel ranks")
      .refused(mesh.tensor == 1,
               "with --tp 1: there is nobody to split rows with; leave it out, or say --tp 2 or "
               "more");
  section(command, "Tensor parallelism");
  add("--embed", o.embed,
      "embedding and head of tensor parallel ranks: a part on each, or all on the first, which "
      "broadcasts",
      CLI::IsMember(train::kEmbeds))
      .refused(mesh.tensor == 1,
               "with --tp 1: no rank has a part of the embedding; leave it out, or say --tp 2 or "
               "more");
  add("--tp-style", flags.tp_style, "megatron, or seed: gathers Q, K and results",
      CLI::IsMember({"megatron", "seed"}))
      .refused(mesh.tensor == 1,
               "with --tp 1: nothing is split; leave it out, or say --tp 2 or more");
  section(command, "Optimizer");
  add("--optimizer", flags.optimizer, "optimizer: adamw or sgd", CLI::IsMember({"adamw", "sgd"}));
  CLI::Option* lr = add("--lr", o.rate.peak, "learning rate", finite, positive).option;
  add.unset("--lr-per-256", flags.lr_per_256,
            "learning rate per 256 samples of --batch (linear scaling), instead of --lr", finite,
            positive)
      .option->excludes(lr);
  add("--warm-up", o.rate.warm_up, "steps until the full learning rate", at_least_0);
  add("--clip", o.clip, "largest norm of the gradient; 0: no limit", finite, at_least_0);
  add("--seed", o.seed, "seed of the first weights and of the samples");
  section(command, "Output");
  add("--log", flags.log, "file to which JSON lines are added, one per step")
      .refused(flags.steps == 0, "with --steps 0: nothing is trained; leave one of them out");
  add("--trace", flags.trace,
      "trace of every rank: communication, F, B, W and samples, for Perfetto; Chakra's .et")
      .agreed(flags.trace.empty() ? "nowhere" : "somewhere");
  add("--sample", flags.sample,
      "bytes to write at the end, with a KV cache, on the processors of the first ranks of --tp",
      at_least_0)
      .agreed();
  add.flag("--no-cache{false}", flags.cache,
           "write the sample without a KV cache: each byte computes all positions")
      .refused(flags.sample == 0, kNoSample);
  add.unset("--prompt", flags.prompt, "what the sample begins with (default: a new line)")
      .refused(flags.sample == 0, kNoSample);
  add("--temperature", flags.temperature, "temperature of the sample; lower: likelier bytes",
      finite, positive)
      .refused(flags.sample == 0, kNoSample);
  section(command, "Checkpoints and restarts");
  checkpoint_rows(add, flags);
  section(command, "Numbers");
  add.unset("--loss-scale", o.loss_scale, "first scale of dynamic loss scaling", finite, at_least_0)
      .refused(flags.type == "fp16" && o.loss_scale == 0,
               "with --type fp16: its gradients need a scale; leave it out, or say one above 0");
  add.unset("--peak-tflops", flags.peak_tflops,
            "peak of a GPU in TFLOP/s, for MFU (default: dense bf16 by its name)", finite, positive)
      .refused(flags.backend == "cpu",
               "with --backend cpu: the MFU is a GPU's; leave it out, or say --backend cuda");
  for (const char* other : {"--save", "--resume", "--restart", "--elastic", "--trace", "--compress",
                            "--deterministic", "--offload", "--loss-scale", "--prompt",
                            "--eval-every", "--eval-data", "--algo", "--no-overlap", "--sample"})
    add.row(other).refused(async && (other != std::string("--sample") || flags.sample > 0),
                           "with --sync ps-async: it has none of that; leave one out");
}

}  // namespace

void add_train_flags(CLI::App& command, TrainFlags& flags) {
  flags.options.rate = {.peak = 3e-3, .warm_up = 10};
  command.option_defaults()->multi_option_policy(CLI::MultiOptionPolicy::TakeLast);
  add_job_flags(command, flags.job);
  train_rows(command, OptionTable(command), flags);
}

void check_train_flags(CLI::App& command, TrainFlags& flags) {
  flags.agreed.clear();
  train_rows(command, OptionTable(command, flags.agreed), flags);
}

}  // namespace weft
