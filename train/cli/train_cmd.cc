// `weft train`: completes the flags and starts the jobs.
#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <memory>
#include <string_view>

#include "coll/jobs/session.h"
#include "topo/base/exit_code.h"
#include "train/cli/commands.h"
#include "train/cli/train_chakra.h"
#include "train/cli/train_checks.h"
#include "train/cli/train_elastic.h"
#include "train/cli/train_flags.h"
#include "train/cli/train_run.h"
#include "train/device/context.h"
#include "train/model/learning_rate.h"
#include "train/spiral/feed_forward.h"
#include "transport/job/bootstrap.h"
#include "transport/launch/local_job.h"

namespace weft {
namespace {

// OpenBLAS up to 0.3.21 does not recognize new AMD processors and uses only half of their vector
// width. Affects ranks that this process starts. Keeps a user's OPENBLAS_CORETYPE.
void prefer_wide_products() {
#if defined(__x86_64__)
  __builtin_cpu_init();
  if (__builtin_cpu_is("amd") && __builtin_cpu_supports("avx512f") &&
      __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl") &&
      __builtin_cpu_supports("avx512bw"))
    setenv("OPENBLAS_CORETYPE", "SkylakeX", 0);
#endif
}

// Derives the mesh's size from the job's size, or vice versa, if only one is given.
void complete(TrainFlags& flags, bool dp_given) {
  auto& mesh = flags.options.mesh;
  const int others = mesh.tensor * mesh.pipeline;
  int ranks = flags.job.ranks;
  if (launched()) ranks = job_from_environment().size;
  if (flags.restart.elastic && restarted() && launched()) {  // fewer ranks than on the command line
    flags.job.ranks = flags.job.hosts = 0;
    mesh.data = ranks / others;
    return;
  }
  if (!dp_given && ranks > 0) mesh.data = std::max(1, ranks / others);
  if (!launched() && flags.job.ranks == 0) flags.job.ranks = mesh.ranks();
}

// Selects the next smaller number of replicas. Returns false if there is none.
bool fewer_replicas(TrainFlags& flags) {
  auto& o = flags.options;
  const int fewer = replicas_that_fit(o, o.mesh.data - 1);
  if (fewer == 0) return false;
  o.mesh.data = fewer;
  flags.job.ranks = o.mesh.ranks();
  flags.job.hosts = std::min(flags.job.hosts, flags.job.ranks);
  return true;
}

// Sets --backend auto, and --type if it is not given.
void choose_backend(TrainFlags& flags) {
  if (flags.backend == "auto") flags.backend = device() != nullptr ? "cuda" : "cpu";
  const bool cuda = flags.backend == "cuda";
  if (cuda && device() == nullptr)
    throw Error(fmt::format("--backend cuda: missing {}; --backend cpu trains without one",
                            missing_device()));
  if (flags.type.empty()) flags.type = cuda ? "bf16" : "float";
}

int train_gpt(TrainFlags& flags) {
  auto& o = flags.options;
  if (flags.type == "fp16" && o.loss_scale == 0) o.loss_scale = 65536;
  o.seed_style = flags.tp_style == "seed";
  o.optimizer.adam = flags.optimizer == "adamw";
  if (flags.lr_per_256 > 0)
    o.rate.peak = train::linear_scaling(static_cast<double>(o.batch), flags.lr_per_256);
  o.rate.steps = flags.steps;
  o.rate.floor = o.rate.peak / 10;
  o.parameter_server = flags.sync == "ps";
  // Not on a device: its streams may wait for a collective that never completes.
  flags.job.outlives_killed = flags.restart.elastic && flags.backend != "cuda";
  if (flags.job.outlives_killed) flags.job.replacements = flags.restart.restarts;
  if (std::getenv(kReplaces) != nullptr)
    flags.job.join = [&](const WorldOptions&) { return wait_to_join(elasticity(flags)); };
  const auto run = [&] {
    Rank me = kNoRank;  // kNoRank: the ranks are other processes
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

// Three emulated hosts with two rails, unless a launcher sets them.
int train_ffn(TrainFlags& flags, const CLI::App& command) {
  if (const int code = one_rank_tells([&] { check_ffn_flags(command); }); code != kExitOk)
    return code;
  if (!launched()) {
    const auto fill = [](int& size, int value) { size = size == 0 ? value : size; };
    fill(flags.job.ranks, 6);
    fill(flags.job.hosts, 3);
    fill(flags.job.rails, 2);
  }
  const int steps = command.get_option("--steps")->count() > 0 ? flags.steps : 20;
  return run_job("train", flags.job, [&](World& world) {
    train::show_feed_forward(world, steps);
    return kExitOk;
  });
}

int train_command(TrainFlags& flags, CLI::App& command) {
  if (flags.network == "ffn") return train_ffn(flags, command);
  choose_backend(flags);
  complete(flags, command.get_option("--dp")->count() > 0);
  if (const int code = one_rank_tells([&] { check_train_flags(command, flags); }); code != kExitOk)
    return code;
  prefer_wide_products();
  check_train_folders(flags.save, flags.trace);
  if (flags.options.deterministic) setenv("WEFT_DETERMINISTIC", "1", 1);
  if (!flags.trace.empty()) setenv("WEFT_TRACE", flags.trace.c_str(), 1);
  return train_gpt(flags);
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
