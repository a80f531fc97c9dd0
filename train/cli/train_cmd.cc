// `weft train`: the run of one rank, and its progress. This file does not
// compute a step.
#include <fmt/format.h>
#include <malloc.h>
#include <sched.h>
#include <unistd.h>

#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <limits>
#include <memory>
#include <optional>
#include <set>
#include <string_view>
#include <thread>

#include "coll/jobs/session.h"
#include "coll/observe/trace.h"
#include "coll/runtime/internals.h"
#include "topo/base/exit_code.h"
#include "train/checkpoint/checkpoint.h"
#include "train/checkpoint/lock.h"
#include "train/cli/commands.h"
#include "train/cli/printable.h"
#include "train/cli/train_chakra.h"
#include "train/cli/train_checks.h"
#include "train/cli/train_flags.h"
#include "train/cli/train_log.h"
#include "train/cli/train_resume.h"
#include "train/device/context.h"
#include "train/model/learning_rate.h"
#include "train/model/mfu.h"
#include "train/pipeline/trace.h"
#include "train/trainer.h"
#include "transport/launch/local_job.h"

namespace weft {
namespace {

using train::Trainer;
using train::TrainOptions;

// Ranks of a machine share its cores; a rank that is bound has its share already.
int operator_threads(const World& world) {
  cpu_set_t mask;
  CPU_ZERO(&mask);
  sched_getaffinity(0, sizeof mask, &mask);
  const int allowed = CPU_COUNT(&mask), cores = static_cast<int>(sysconf(_SC_NPROCESSORS_ONLN));
  if (allowed < cores) return allowed;
  int here = 0;
  const Topology& t = world.topology();
  for (Rank r = 0; r < t.nranks(); ++r) here += t.same_kernel(r, world.rank()) ? 1 : 0;
  return std::max(1, allowed / here);
}

// Ranks of a machine take its GPUs in turn; several may share one.
int gpu_of(const World& world) {
  Device* found = device();
  int before = 0;
  const Topology& t = world.topology();
  for (Rank r = 0; r < world.rank(); ++r)
    before += t.place(r).machine == t.place(world.rank()).machine ? 1 : 0;
  return found == nullptr ? 0 : before % found->count();
}

// Peak of all GPUs of the job together, in FLOP/s; 0 where it is not known.
double peak_of_all(World& world, const TrainFlags& flags) {
  const train::DeviceContext& context = train::DeviceContext::of_this_rank();
  const auto all = job_of(world).all_gather(device()->identity(context.gpu()));
  const std::set<std::string> gpus(all.begin(), all.end());
  double each = flags.peak_tflops;
  const bool half = flags.type == "bf16" || flags.type == "fp16";
  if (each == 0 && half) each = train::gpu_peaks(device()->describe(context.gpu())).tflops;
  return each * 1e12 * static_cast<double>(gpus.size());
}

// Tensors of a step come and go; pages that the system took back would be cleared again each time.
void keep_freed_memory() {
  mallopt(M_MMAP_MAX, 0);
  mallopt(M_TRIM_THRESHOLD, std::numeric_limits<int>::max());
}

// Weights that are numbers no more go on like that for ever: a job that gets no further ends,
// before its checkpoints take the place of those that were good.
void require_steps(const train::StepReport& r, int steps) {
  constexpr int kMostLost = 20;
  if (r.lost == 0 || (r.lost < kMostLost && r.step < steps)) return;
  throw UsageError(fmt::format(
      "step {}: the loss is {} and the norm of its gradient {}: all steps from {} on were skipped, "
      "and nothing has been saved since; take a smaller --lr or --clip, with --resume from a "
      "checkpoint of before",
      r.step, r.loss, r.norm, r.step - r.lost + 1));
}

// The text that a run evaluates, which it is not trained on; empty: none. All ranks agree on it.
std::optional<train::Text> text_to_evaluate(World& world, const TrainFlags& flags,
                                            train::Text& text) {
  if (evaluates_every(flags) == 0) return {};
  std::optional<train::Text> test;
  if (!flags.eval_data.empty()) {
    test = train::Text::load(flags.eval_data, "--eval-data");
  } else if (flags.eval_every > 0 || text.size() / 20 > flags.options.model.positions) {
    test = text.hold_out();
  } else {
    return {};
  }
  test->require_sample(flags.options.model.positions);
  train::agree(world, fmt::format("evaluated-text {}", test->fingerprint()));
  return test;
}

template <class T>
int run_gpt(World& world, const TrainFlags& flags) {
  train::agree(world, what_ranks_share(flags));
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
  const std::optional<train::Text> test = text_to_evaluate(world, flags, text);
  TrainOptions options = flags.options;
  const bool speaks = world.rank() == 0;
  options.count_bytes = speaks && !flags.log.empty();
  Trainer<T> trainer(world, options, text);
  const auto& mesh = options.mesh;
  const double tokens = static_cast<double>(options.batch * options.model.positions);
  if (speaks)
    fmt::print(
        "# {:.3f} M parameters, {} ({} bytes), dp {} x tp {} x pp {}, ZeRO {}, {}, "
        "{} samples a step in micro-batches of {}\n"
        "#  step      loss      norm    tokens/s   comm  exposed  bubble  memory\n",
        static_cast<double>(train::parameter_count(options.model)) / 1e6, text.source(),
        text.size(), mesh.data, mesh.tensor, mesh.pipeline, options.zero, options.schedule,
        options.batch, options.micro_batch);
  TrainLog log(speaks ? flags.log : "");
  Communicator checkpoint = trainer.mesh().all.comm().duplicate();
  std::optional<train::FolderLock> lock;
  if (!flags.save.empty()) lock.emplace(checkpoint, flags.save);
  if (flags.resume || restarted()) {
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
    fmt::print("{:7}  {:8.4f}  {:8.4f}  {:10.0f}  {:4.0f} %  {:5.0f} %  {:4.0f} %  {:4.0f} MB\n",
               r.step, r.loss, r.norm, rate, 100 * r.communication_share(),
               r.gradient_seconds > 0 ? 100 * r.exposed_seconds / r.gradient_seconds : 0,
               100 * r.bubble, resident_bytes() / 1e6);
    if (test_loss)
      fmt::print("# {} steps: test loss {:.4f}, perplexity {:.4g} a byte\n", r.step, *test_loss,
                 std::exp(*test_loss));
    std::fflush(stdout);
  };
  bool due = false;
  while (trainer.steps_done() < flags.steps) {
    die_on_purpose(flags.restart, world.rank(), trainer.steps_done() + 1);
    const train::StepReport r = trainer.step();
    std::optional<double> test_loss;
    if (test && r.step % evaluates_every(flags) == 0 && r.lost == 0)
      test_loss = trainer.evaluate(*test);
    // Before it is saved: a job that goes on would not say it again.
    if (speaks) show(r, test_loss);
    require_steps(r, flags.steps);
    due = due || r.step % flags.save_every == 0 || r.step == flags.steps;
    if (flags.save.empty() || !due || r.lost > 0) continue;
    due = false;
    train::save_checkpoint(checkpoint, flags.save, r.step, trainer.pieces(),
                           train::describe_run(options, text, trainer.scaler(), flags.type),
                           {.keep = flags.keep});
  }
  if (speaks && peak > 0)
    fmt::print(
        "# MFU of the fastest step {:.1f} %: {:.0f} tokens/s x {:.4g} FLOPs per token (6 N + "
        "12 L d T) of {:.0f} TFLOP/s\n",
        100 * best * train::flops_per_token(options.model) / peak, best,
        train::flops_per_token(options.model), peak / 1e12);
  if (!flags.trace.empty())
    train::write_pipeline_trace(file_of_rank(train::pipeline_file(flags.trace), world.rank()),
                                world.rank(), train::pipeline_of(mesh, world.rank()),
                                trainer.pipeline().schedule().shape,
                                trainer.pipeline().last().records);
  if (flags.sample > 0) {
    const auto weights = trainer.collect();
    if (speaks)
      fmt::print("# sample:\n{}\n",
                 printable(train::generate<train::HostOf<T>>(options.model, weights, flags.prompt,
                                                             flags.sample, flags.temperature, 1)));
  }
  return kExitOk;
}

// OpenBLAS up to 0.3.21 takes new AMD processors for old ones and leaves half of their vectors
// unused; the ranks that are started from here load it anew. An own OPENBLAS_CORETYPE stays.
void prefer_wide_products() {
#if defined(__x86_64__)
  __builtin_cpu_init();
  if (__builtin_cpu_is("amd") && __builtin_cpu_supports("avx512f") &&
      __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl") &&
      __builtin_cpu_supports("avx512bw"))
    setenv("OPENBLAS_CORETYPE", "SkylakeX", 0);
#endif
}

// The sizes of the mesh and of the job, each from the other where one is not given.
void complete(TrainFlags& flags, bool dp_given) {
  auto& mesh = flags.options.mesh;
  const int others = mesh.tensor * mesh.pipeline;
  int ranks = flags.job.ranks;
  if (launched()) ranks = job_from_environment().size;
  if (flags.restart.elastic && restarted() && launched()) {  // fewer than the command line says
    flags.job.ranks = flags.job.hosts = 0;
    mesh.data = ranks / others;
    return;
  }
  if (!dp_given && ranks > 0) mesh.data = std::max(1, ranks / others);
  if (!launched() && flags.job.ranks == 0) flags.job.ranks = mesh.ranks();
}

// The next smaller number of replicas that the batch divides by, if there is one.
bool fewer_replicas(TrainFlags& flags) {
  auto& o = flags.options;
  for (int dp = o.mesh.data - 1; dp > 0; --dp) {
    if (o.batch % (o.micro_batch * static_cast<train::Index>(dp)) != 0) continue;
    if (o.mesh.shard > 0 && dp % o.mesh.shard != 0) continue;
    o.mesh.data = dp;
    set_ranks(flags.job, o.mesh.ranks());
    return true;
  }
  return false;
}

// What --backend and --type are, where one of them is not said.
void choose_backend(TrainFlags& flags) {
  // Streams that wait for other ranks must not hold up others, but the driver puts streams one
  // behind the other where it has fewer connections (8, unless told) than there are.
  if (flags.backend != "cpu") setenv("CUDA_DEVICE_MAX_CONNECTIONS", "32", 0);
  if (flags.backend == "auto") flags.backend = device() != nullptr ? "cuda" : "cpu";
  const bool cuda = flags.backend == "cuda";
  if (cuda && device() == nullptr)
    throw Error(fmt::format("--backend cuda: missing {}; --backend cpu trains without one",
                            missing_device()));
  if (flags.type.empty()) flags.type = cuda ? "bf16" : "float";
  const bool half = flags.type == "bf16" || flags.type == "fp16";
  if (half && !cuda)
    throw Error(
        fmt::format("--type {} needs --backend cuda: the processor computes in float and "
                    "double",
                    flags.type));
  auto& o = flags.options;
  if (flags.type == "fp16" && o.loss_scale == 0) o.loss_scale = 65536;
}

int run_as(World& world, const TrainFlags& flags) {
  using namespace train;
  if (flags.backend != "cuda")
    return flags.type == "double" ? run_gpt<double>(world, flags) : run_gpt<float>(world, flags);
  if (flags.type == "double") return run_gpt<OnDevice<Fp64>>(world, flags);
  if (flags.type == "float") return run_gpt<OnDevice<Fp32>>(world, flags);
  if (flags.type == "bf16") return run_gpt<OnDevice<Bf16>>(world, flags);
  return run_gpt<OnDevice<Fp16>>(world, flags);
}

int train_gpt(TrainFlags& flags, bool dp_given) {
  choose_backend(flags);
  complete(flags, dp_given);
  auto& o = flags.options;
  o.vocab_parallel = flags.embed == "vocab-parallel";
  o.seed_style = flags.tp_style == "seed";
  o.optimizer.adam = flags.optimizer == "adamw";
  if (flags.lr_per_256 > 0)
    o.rate.peak = train::linear_scaling(static_cast<double>(o.batch), flags.lr_per_256);
  o.rate.steps = flags.steps;
  o.rate.floor = o.rate.peak / 10;
  o.parameter_server = flags.sync == "ps";
  const auto run = [&] {
    Rank me = kNoRank;  // nobody, where the ranks are other processes
    const int code = run_job("train", flags.job, [&](World& world) {
      me = world.rank();
      return run_as(world, flags);
    });
    if (me != kNoRank && code == kExitOk && !flags.trace.empty())
      train::write_chakra_trace(flags.trace, me);
    return code;
  };
  return run_again(flags.restart, flags.job, run, [&] { return fewer_replicas(flags); });
}

int train_command(TrainFlags& flags, const CLI::App& command) {
  if (const int code = one_rank_tells([&] { check_train_flags(command, flags); }); code != kExitOk)
    return code;
  prefer_wide_products();
  check_train_folders(flags.save, flags.trace);
  if (flags.options.deterministic) setenv("WEFT_DETERMINISTIC", "1", 1);
  if (!flags.trace.empty()) setenv("WEFT_TRACE", flags.trace.c_str(), 1);
  return train_gpt(flags, command.get_option("--dp")->count() > 0);
}

}  // namespace

void add_train(CLI::App& app, int& exit_code) {
  auto flags = std::make_shared<TrainFlags>();
  CLI::App* command =
      app.add_subcommand("train", "train a model over data, tensor and pipeline parallel ranks");
  add_train_flags(*command, *flags);
  command->footer("Example: weft train -N 4 --dp 2 --pp 2 --steps 20");
  command->callback([flags, command, &exit_code] { exit_code = train_command(*flags, *command); });
}

}  // namespace weft
