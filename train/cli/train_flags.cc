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

void add_train_flags(CLI::App& command, TrainFlags& flags) {
  auto& o = flags.options;
  o.rate = {.peak = 3e-3, .warm_up = 10};
  command.option_defaults()->multi_option_policy(CLI::MultiOptionPolicy::TakeLast);
  add_job_flags(command, flags.job);
  add_spiral_flags(command, flags.spiral);
  const auto positive = CLI::PositiveNumber;
  command
      .add_option("--model", flags.model,
                  "gpt: a byte-level transformer; spiral: a small network, fp64")
      ->check(CLI::IsMember({"gpt", "spiral"}))
      ->capture_default_str();
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
  command.add_option("--steps", flags.steps, "steps; of the spiral 10000, if not said")
      ->check(positive)
      ->capture_default_str();
  command.add_option("--batch", o.batch, "samples per step, over all ranks")
      ->check(positive)
      ->capture_default_str();
  command.add_option("--micro-batch", o.micro_batch, "samples that pass the model together")
      ->check(positive)
      ->capture_default_str();
  command.add_option("--vocabulary", o.model.vocabulary, "at least 256")
      ->check(CLI::Range(256, 1 << 20))
      ->capture_default_str();
  command.add_option("--positions", o.model.positions, "bytes of a sample")
      ->check(CLI::Range(1, 1 << 24))
      ->capture_default_str();
  command.add_option("--width", o.model.width, "numbers per position, a multiple of --heads")
      ->check(CLI::Range(1, 1 << 20))
      ->capture_default_str();
  command.add_option("--heads", o.model.heads, "of attention, a multiple of --tp")
      ->check(CLI::Range(1, 1 << 20))
      ->capture_default_str();
  command.add_option("--layers", o.model.layers, "blocks; each stage of a pipeline needs one")
      ->check(CLI::Range(1, 10000))
      ->capture_default_str();
  command.add_flag("--untied{false}", o.model.tied, "a head of its own, not the embedding");
  command.add_option("--dp", o.mesh.data, "data parallel ranks (default: the rest)")
      ->check(positive);
  command.add_option("--tp", o.mesh.tensor, "tensor parallel ranks")
      ->check(positive)
      ->capture_default_str();
  command.add_option("--pp", o.mesh.pipeline, "pipeline parallel ranks")
      ->check(positive)
      ->capture_default_str();
  command.add_option("--order", o.mesh.order, "axes from neighbours to the farthest")
      ->capture_default_str();
  command.add_option("--algo", o.mesh.algorithm, "of collectives: auto or an algorithm's name")
      ->capture_default_str();
  command.add_option("--schedule", o.schedule, "of the pipeline")
      ->check(CLI::IsMember(train::pipeline_schedule_names()))
      ->capture_default_str();
  command.add_option("--chunks", o.chunks, "stages of a pipeline rank (interleaved)")
      ->check(positive)
      ->capture_default_str();
  command.add_option("--zero", o.zero, "0: all state on every replica; 1, 2, 3: split")
      ->check(CLI::Range(0, 3))
      ->capture_default_str();
  command.add_option("--shard-group", o.mesh.shard, "replicas that split the state (0: all)")
      ->check(CLI::NonNegativeNumber)
      ->capture_default_str();
  command.add_option("--bucket-bytes", o.bucket_bytes, "of gradients that travel together")
      ->check(positive)
      ->capture_default_str();
  command.add_flag("--no-overlap{false}", o.overlap, "gradients travel after the backward pass");
  command.add_flag("--deterministic", o.deterministic, "the same bits for every --dp and --zero");
  command.add_option("--offload", o.offload,
                     "folder where activations and optimizer state wait, not in memory; host: in "
                     "the host's memory, not the GPU's");
  command.add_flag("--recompute", o.recompute, "keep the inputs of blocks only");
  command.add_flag("--sequence-parallel", o.sequence_parallel, "split rows between TP regions");
  command.add_option("--embed", flags.embed, "of the embedding on tensor parallel ranks")
      ->check(CLI::IsMember({"vocab-parallel", "replicated"}))
      ->capture_default_str();
  command.add_option("--tp-style", flags.tp_style, "megatron, or seed: gathers Q, K and results")
      ->check(CLI::IsMember({"megatron", "seed"}))
      ->capture_default_str();
  command.add_option("--optimizer", flags.optimizer)
      ->check(CLI::IsMember({"adamw", "sgd"}))
      ->capture_default_str();
  auto* lr =
      command.add_option("--lr", o.rate.peak, "learning rate; of the spiral 0.3, if not said")
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
  command
      .add_option("--seed", o.seed, "of first weights and samples; of the spiral 24, if not said")
      ->capture_default_str();
  command.add_option("--log", flags.log,
                     "JSON lines, one per step (of the spiral: per report), are added here");
  command.add_option("--trace", flags.trace, "trace of every rank's communication, for Perfetto and as Chakra's .et");
  command
      .add_option("--sample", flags.sample,
                  "bytes to write at the end, each a forward pass on rank 0's processor")
      ->check(CLI::NonNegativeNumber)
      ->capture_default_str();
  command.add_option("--prompt", flags.prompt, "what the sample begins with (default: a new line)");
  command.add_option("--temperature", flags.temperature, "of the sample; lower: likelier bytes")
      ->check(finite_number())
      ->check(positive)
      ->capture_default_str();
  command.add_option("--save", flags.save, "folder of checkpoints");
  command
      .add_option("--save-every", flags.save_every,
                  "steps between checkpoints; of the spiral a tenth")
      ->check(positive)
      ->capture_default_str();
  command.add_option("--keep", flags.keep, "checkpoints that are kept")
      ->check(positive)
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
  command.add_option("--loss-scale", o.loss_scale, "dynamic loss scaling that begins with this")
      ->check(finite_number())
      ->check(CLI::NonNegativeNumber);
  command.add_flag("--bench-kernels", flags.bench_kernels,
                   "time the kernels of --backend cuda; train nothing");
  command.add_option("--bench-rows", flags.bench.rows, "of --bench-kernels: samples x positions")
      ->check(positive)
      ->capture_default_str();
  command.add_option("--bench-repeat", flags.bench.repeat, "of --bench-kernels: times each")
      ->check(positive)
      ->capture_default_str();
  command
      .add_option("--peak-tflops", flags.bench.peaks.tflops,
                  "of a GPU, for MFU (default: dense bf16 of the GPU's name)")
      ->check(finite_number())
      ->check(positive);
  command
      .add_option("--peak-gbs", flags.bench.peaks.gb_per_s,
                  "of a GPU's memory, for --bench-kernels (default: of its name)")
      ->check(finite_number())
      ->check(positive);
  auto* explain =
      command.add_flag("--explain", flags.explain, "print the pipeline's steps; train nothing");
  command.add_option("--of", flags.of, "with --explain: what a run really did, by its --trace")
      ->needs(explain);
  command.add_option("--stages", flags.stages, "for --explain (default: --pp)")
      ->check(positive)
      ->needs(explain);
  command.add_option("--micro-batches", flags.micro_batches, "for --explain (default: --stages)")
      ->check(positive)
      ->needs(explain);
}

}  // namespace weft
