// The run of one rank of `weft train`: setup, steps, evaluations, checkpoints, progress. trainer.h
// computes a step.
#include "train/cli/train_run.h"

#include <fmt/format.h>
#include <malloc.h>
#include <sched.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <limits>
#include <memory>
#include <optional>
#include <set>
#include <type_traits>
#include <vector>

#include "coll/observe/trace.h"
#include "coll/runtime/internals.h"
#include "topo/base/exit_code.h"
#include "train/checkpoint/checkpoint.h"
#include "train/checkpoint/lock.h"
#include "train/checkpoint/waiting_room.h"
#include "train/cli/printable.h"
#include "train/cli/train_elastic.h"
#include "train/cli/train_log.h"
#include "train/cli/train_resume.h"
#include "train/device/context.h"
#include "train/device/peaks.h"
#include "train/model/inference.h"
#include "train/model/mfu.h"
#include "train/pipeline/trace.h"
#include "train/server/async_server.h"
#include "train/trainer.h"
#include "transport/gpu/rank_gpu.h"

namespace weft {

namespace {

using train::Trainer;
using train::TrainOptions;

// Divides a machine's cores among its ranks; a rank with a CPU affinity uses the cores it has.
int operator_threads(const World& world) {
  cpu_set_t mask;
  CPU_ZERO(&mask);
  sched_getaffinity(0, sizeof mask, &mask);
  const int allowed = CPU_COUNT(&mask), cores = static_cast<int>(sysconf(_SC_NPROCESSORS_ONLN));
  if (allowed < cores) return allowed;
  int here = 0;
  const Topology& t = world.topology();
  for (Rank r = 0; r < t.nranks(); ++r) here += static_cast<int>(t.same_kernel(r, world.rank()));
  return std::max(1, allowed / here);
}

int gpu_of(const World& world) {
  const Device* found = device();
  return found == nullptr ? 0 : gpu_of_rank(world.topology(), world.rank(), *found);
}

// Returns the peak of all GPUs of the job together, in FLOP/s; 0 if unknown.
double peak_of_all(World& world, const TrainFlags& flags) {
  const train::DeviceContext& context = train::DeviceContext::of_this_rank();
  const auto all = job_of(world).all_gather(device()->identity(context.gpu()));
  const std::set<std::string> gpus(all.begin(), all.end());
  double each = flags.peak_tflops;
  const bool half = flags.type == "bf16" || flags.type == "fp16";
  if (each == 0 && half) each = train::gpu_peaks(device()->describe(context.gpu())).tflops;
  return each * 1e12 * static_cast<double>(gpus.size());
}

// Keeps freed memory: each step allocates its tensors again, and new pages would have to be zeroed.
void keep_freed_memory() {
  mallopt(M_MMAP_MAX, 0);
  mallopt(M_TRIM_THRESHOLD, std::numeric_limits<int>::max());
}

// NaN weights remain NaN: ends a job without progress before its checkpoints replace the last good
// checkpoints.
void require_steps(const train::StepReport& r, int steps) {
  constexpr int kMostLost = 20;
  if (r.lost == 0 || (r.lost < kMostLost && r.step < steps)) return;
  throw UsageError(fmt::format(
      "step {}: the loss is {} and the norm of its gradient {}: all steps from {} on were skipped, "
      "and nothing has been saved since; take a smaller --lr or --clip, with --resume from a "
      "checkpoint of before",
      r.step, r.loss, r.norm, r.step - r.lost + 1));
}

// Returns the text to evaluate, which is not trained on; empty: none. Runs too short to evaluate
// hold out the same text, so that runs of any length train on the same text.
std::optional<train::Text> text_to_evaluate(const TrainFlags& flags, train::Text& text) {
  if (flags.eval_every == 0) return {};
  std::optional<train::Text> test;
  if (!flags.eval_data.empty())
    test = train::Text::load(flags.eval_data, "--eval-data");
  else if (flags.eval_every > 0 || text.size() / 20 > flags.options.model.positions)
    test = text.hold_out();
  if (!test || evaluates_every(flags) == 0) return {};
  test->require_sample(flags.options.model.positions);
  return test;
}

// Collective over the first replica's tensor-parallel group, whose rank 0 prints the sample.
template <class T>
void write_sample(train::Inference<T>& model, const TrainFlags& flags, bool speaks) {
  const double begin = now_s();
  const std::string text =
      model.generate(flags.prompt, flags.sample, flags.temperature, 1, flags.cache);
  const double rate = flags.sample / (now_s() - begin);
  if (speaks) fmt::print("# sample, {:.0f} tokens/s:\n{}\n", rate, printable(text));
}

// Returns the layout of inference: training's layout without data and sequence parallelism.
train::GptParallel in_group(const TrainOptions& options, train::Mesh& mesh) {
  train::GptParallel parallel = parallel_of(options);
  parallel.tensor = &mesh.tensor;
  return parallel;
}

// --steps 0: evaluates the newest checkpoint, and writes a sample, on the ranks of --tp.
template <class T>
int infer(World& world, const TrainFlags& flags, const std::optional<train::Text>& test) {
  const TrainOptions& o = flags.options;
  check(o);
  train::MeshShape shape = o.mesh;
  shape.shard = 1;
  train::Mesh mesh(world, shape);
  if (mesh.at.data != 0 || mesh.at.pipeline != 0) return kExitOk;
  const bool speaks = world.rank() == 0;
  train::Inference<T> model(o.model, in_group(o, mesh));
  const train::Checkpoint loaded =
      train::load_checkpoint(mesh.tensor.comm(), flags.save, model.pieces());
  if (speaks) fmt::print("# weights of step {} of {}\n", loaded.step, loaded.path);
  if (test) {
    const double loss = model.loss(*test, o.seed, o.batch);
    if (speaks) fmt::print("# test loss {:.4f}, perplexity {:.4g} a byte\n", loss, std::exp(loss));
  }
  if (flags.sample > 0) write_sample(model, flags, speaks);
  return kExitOk;
}

// State that a rank keeps when it moves to the next World.
template <class T>
struct Carried {
  std::unique_ptr<World> world;
  // Source of the state: as the flags select, in memory, or the newest checkpoint.
  enum { kByFlags, kInMemory, kInCheckpoint } from = kByFlags;
  bool waits = false;  // the rank is not needed now but may be needed later
  int step = 0;
  double loss = 0, norm = 0;  // loss and norm of that step
  train::LossScaler scaler{0};
  std::vector<std::vector<train::HostOf<T>>> state;  // data of Trainer::pieces()

  void take(Trainer<T>& trainer) {
    step = trainer.steps_done();
    scaler = trainer.scaler();
    for (const auto& piece : trainer.pieces())
      state.emplace_back(piece.data, piece.data + piece.count);
  }
  // A replica's sharding is unchanged, so a rank has the same pieces.
  void give(Trainer<T>& trainer) {
    auto from = state.begin();
    for (const auto& piece : trainer.pieces()) std::ranges::copy(*from++, piece.data);
    trainer.restored();
    trainer.set_steps_done(step);
    trainer.scaler() = scaler;
    state.clear();
  }
};

// Trains in this World to the end, or until ranks are lost and the other ranks can continue, or new
// ranks join: `carried` then has the next World, or null if this rank is not needed.
template <class T>
int run_in(World& world, const TrainFlags& flags, const train::Text& text,
           const std::optional<train::Text>& test, double peak, Carried<T>& carried) {
  TrainOptions options = flags.options;
  const bool speaks = world.rank() == 0;
  if (carried.from != carried.kByFlags)
    options.mesh.data = world.size() / (options.mesh.tensor * options.mesh.pipeline);
  options.count_bytes = speaks && !flags.log.empty();
  Trainer<T> trainer(world, options, text);
  const auto& mesh = options.mesh;
  const double tokens = static_cast<double>(options.batch * options.model.positions);
  if (speaks)
    fmt::print(
        "# {:.3f} M parameters, {} ({} bytes)\n"
        "# dp {} x tp {} x pp {}, ZeRO {}, {}, {} samples a step in micro-batches of {}\n"
        "#  step      loss      norm    tokens/s   comm  exposed  bubble  memory\n",
        static_cast<double>(train::parameter_count(options.model)) / 1e6, text.source(),
        text.size(), mesh.data, mesh.tensor, mesh.pipeline, options.zero, options.schedule,
        options.batch, options.micro_batch);
  TrainLog log(speaks ? flags.log : "");
  Communicator checkpoint = trainer.mesh().all.comm().duplicate();
  std::optional<train::FolderLock> lock;
  if (!flags.save.empty()) lock.emplace(checkpoint, flags.save);
  const bool first = carried.from == carried.kByFlags;
  if (first && speaks && flags.job.replacements > 0) train::WaitingRoom(flags.save).open();
  if (carried.from == carried.kInMemory) {
    carried.give(trainer);
    if (speaks)
      fmt::print("# a replica is lost: {} go{} on after step {}, with what is in memory\n",
                 mesh.data, mesh.data == 1 ? "es" : "", carried.step);
    // The ranks that printed and logged this step may be lost.
    if (log.on() && carried.step > 0)
      log.write({{"step", carried.step}, {"loss", carried.loss}, {"gradient_norm", carried.norm}});
  } else if (flags.resume || restarted() || !first) {
    if (speaks && !first)
      fmt::print("# {} replica{} go{} on with what is saved\n", mesh.data,
                 mesh.data == 1 ? "" : "s", mesh.data == 1 ? "es" : "");
    if (!train::checkpoint_there(checkpoint, flags.save)) {
      if (speaks) fmt::print("# {}: no checkpoint there yet, from the start\n", flags.save);
    } else {
      const auto loaded = train::load_run(checkpoint, flags.save, trainer.pieces(), options);
      trainer.set_steps_done(loaded.step);
      trainer.restored();
      train::restore(loaded, trainer.scaler());
      for (const std::string& why : loaded.left_out)
        if (speaks) fmt::print(stderr, "weft train: warning: left out: {}\n", why);
      for (const std::string& what : train::differences(loaded, options, text, flags.type))
        if (speaks) fmt::print(stderr, "weft train: warning: {}\n", what);
      if (speaks) fmt::print("# goes on after step {} of {}\n", loaded.step, loaded.path);
    }
  } else if (!flags.save.empty()) {
    train::require_no_checkpoint(checkpoint, flags.save);
  }
  const auto memory = [] {  // of this rank, on its GPU if it has one
    if constexpr (train::kOnDevice<T>)
      return static_cast<double>(train::DeviceContext::of_this_rank().reserved());
    else
      return resident_bytes();
  };
  double shown = 0, best = 0;
  const auto show = [&](const train::StepReport& r, std::optional<double> test_loss) {
    const double rate = tokens / r.seconds, now = now_s();
    if (log.on()) {
      auto line = to_json(r, rate);
      if (test_loss) line["test_loss"] = *test_loss;
      if (test_loss) line["test_perplexity"] = std::exp(*test_loss);
      if (peak > 0) line["mfu"] = rate * train::flops_per_token(options.model) / peak;
      log.write(line);
    }
    best = std::max(best, rate);
    if (!test_loss && r.step > 3 && r.step < flags.steps && now - shown < 1) return;
    shown = now;
    const std::string exposed =
        r.gradient_seconds > 0
            ? fmt::format("{:.0f} %", 100 * r.exposed_seconds / r.gradient_seconds)
            : "-";  // no gradients are sent, as with one replica
    fmt::print("{:7}  {:8.4f}  {:8.4f}  {:10.0f}  {:4.0f} %  {:>7}  {:4.0f} %  {:4.0f} MB\n",
               r.step, r.loss, r.norm, rate, 100 * r.communication_share(), exposed, 100 * r.bubble,
               memory() / 1e6);
    if (test_loss)
      fmt::print("# {} steps: test loss {:.4f}, perplexity {:.4g} a byte\n", r.step, *test_loss,
                 std::exp(*test_loss));
    std::fflush(stdout);
  };
  const auto save = [&] {
    train::save_checkpoint(checkpoint, flags.save, trainer.steps_done(), trainer.pieces(),
                           train::describe_run(options, text, trainer.scaler(), flags.type),
                           {.keep = flags.keep});
  };
  bool due = false;
  train::StepReport r;
  if (!first && trainer.steps_done() == flags.steps && !flags.save.empty()) save();
  while (trainer.steps_done() < flags.steps) try {
      if (first) die_on_purpose(flags.restart, world.rank(), trainer.steps_done() + 1);
      r = trainer.step();
      std::optional<double> test_loss;
      if (test && r.step % evaluates_every(flags) == 0 && r.lost == 0)
        test_loss = trainer.evaluate(*test);
      // Print before saving: a resumed job does not print this step again.
      if (speaks) show(r, test_loss);
      require_steps(r, flags.steps);
      due = due || r.step % flags.save_every == 0 || r.step == flags.steps;
      if (flags.save.empty() || !due || r.lost > 0) continue;
      due = false;
      save();
      if (flags.job.replacements == 0 || r.step == flags.steps) continue;
      carried.world = take_in(world, options, elasticity(flags));
      if (!carried.world) continue;
      carried.from = carried.kInCheckpoint;
      if (speaks) fmt::print("# {} ranks join\n", carried.world->size() - world.size());
      return kExitOk;
    } catch (const UsageError&) {
      throw;
    } catch (const std::exception&) {
      if (!flags.job.outlives_killed || world.failure().ok()) throw;
      lock.reset();
      Regrouped left;
      try {
        left = go_on_without_lost(world, options, elasticity(flags), trainer.steps_done(), r.loss,
                                  r.norm);
      } catch (const Error& e) {  // the caller has only this failed World
        fmt::print(stderr, "weft train: {}\n", e.what());
        return kExitCritical;
      }
      carried.world = std::move(left.world);
      carried.waits = !carried.world && flags.job.replacements > 0;
      const bool in_memory = left.in_memory && carried.world;
      carried.from = in_memory ? carried.kInMemory : carried.kInCheckpoint;
      if (!in_memory) return kExitOk;
      if (trainer.steps_done() < left.step) trainer.complete_step(left.loss, left.norm);
      carried.take(trainer);
      carried.loss = left.loss;
      carried.norm = left.norm;
      return kExitOk;
    }
  if (speaks && flags.job.replacements > 0) train::WaitingRoom(flags.save).close();
  if (const double flops = train::flops_per_token(options.model); speaks && peak > 0)
    fmt::print(
        "# MFU of the fastest step {:.1f} %: {:.0f} tokens/s x {:.4g} FLOPs per token\n"
        "# (6 N + 12 L d T) of {:.0f} TFLOP/s\n",
        100 * best * flops / peak, best, flops, peak / 1e12);
  if (!flags.trace.empty())
    train::write_pipeline_trace(
        file_of_rank(train::pipeline_file(flags.trace), world.rank()), world.rank(),
        train::pipeline_of(mesh, world.rank()), trainer.pipeline().schedule().name,
        trainer.pipeline().schedule().shape, trainer.pipeline().last().records, trainer.brought());
  if (flags.sample == 0) return kExitOk;
  const auto weights = trainer.collect();
  train::Mesh& ranks = trainer.mesh();
  if (ranks.at.data != 0 || ranks.at.pipeline != 0) return kExitOk;
  train::Inference<train::HostOf<T>> model(options.model, in_group(options, ranks));
  model.set(weights);
  write_sample(model, flags, speaks);
  return kExitOk;
}

// --sync ps-async: prints the first steps and each 10 % of the run, then the server's report.
template <class T>
int serve_asynchronously(World& world, const TrainFlags& flags, const train::Text& text) {
  const bool speaks = world.rank() == 0;
  TrainLog log(speaks ? flags.log : "");
  if (speaks) fmt::print("#  step      loss\n");
  const train::ServerReport report = train::train_asynchronously<T>(
      world, flags.options, text, flags.steps, flags.staleness, [&](int step, double loss) {
        if (log.on()) log.write({{"step", step}, {"loss", loss}});
        if (step <= 3 || step == flags.steps || step % std::max(1, flags.steps / 10) == 0)
          fmt::print("{:7}  {:8.4f}\n", step, loss);
      });
  if (speaks) fmt::print("{}", to_text(report));
  return kExitOk;
}

template <class T>
int run_gpt(World& world, const TrainFlags& flags) {
  const bool joins = static_cast<bool>(flags.job.join);  // the job agreed before this rank joined
  if (!joins) train::agree(world, flags.agreed);
  check_restart(flags.restart, world, flags.steps);
  double peak = 0;
  if constexpr (train::kOnDevice<T>) {
    train::DeviceContext& context = train::DeviceContext::make(gpu_of(world));
    peak = peak_of_all(world, flags);
    if (world.rank() == 0)
      fmt::print("# {} on {}\n", flags.type, context.device().describe(context.gpu()));
  }
  train::set_operator_threads(operator_threads(world));
  if constexpr (!train::kOnDevice<T>) keep_freed_memory();
  train::Text text = train::Text::load(flags.data);
  const std::optional<train::Text> test = text_to_evaluate(flags, text);
  if (test && !joins) train::agree(world, fmt::format("evaluated-text {}", test->fingerprint()));
  if constexpr (std::is_floating_point_v<T>)
    if (flags.sync == "ps-async") return serve_asynchronously<T>(world, flags, text);
  if (flags.steps == 0) return infer<train::HostOf<T>>(world, flags, test);
  Carried<T> carried;
  if (joins) carried.from = carried.kInCheckpoint;
  int code = run_in<T>(world, flags, text, test, peak, carried);
  while (carried.world || carried.waits) try {
      const std::unique_ptr<World> next =
          carried.waits ? wait_to_join(elasticity(flags)) : std::move(carried.world);
      carried.waits = false;
      if (next) code = run_in<T>(*next, flags, text, test, peak, carried);
    } catch (const std::exception& e) {  // the caller only has the first World, now failed
      fmt::print(stderr, "weft train: {}\n", e.what());
      return dynamic_cast<const UsageError*>(&e) != nullptr ? kExitError : kExitCritical;
    }
  return code;
}

}  // namespace

int run_as(World& world, const TrainFlags& flags) {
  using namespace train;
  if (flags.backend != "cuda") {
    if (flags.type == "double") return run_gpt<double>(world, flags);
    if (flags.type == "bf16") return run_gpt<OnProcessor<Bf16>>(world, flags);
    if (flags.type == "fp16") return run_gpt<OnProcessor<Fp16>>(world, flags);
    return run_gpt<float>(world, flags);
  }
  if (flags.type == "double") return run_gpt<OnDevice<Fp64>>(world, flags);
  if (flags.type == "float") return run_gpt<OnDevice<Fp32>>(world, flags);
  if (flags.type == "bf16") return run_gpt<OnDevice<Bf16>>(world, flags);
  return run_gpt<OnDevice<Fp16>>(world, flags);
}

}  // namespace weft
