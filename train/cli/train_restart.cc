// Restarts of local jobs, and --kill. Does not depend on checkpoints.
#include "train/cli/train_restart.h"

#include <fmt/format.h>
#include <signal.h>

#include <cstdlib>
#include <string>
#include <utility>

#include "topo/base/exit_code.h"
#include "transport/job/bootstrap.h"
#include "transport/launch/local_job.h"

namespace weft {
namespace {

// Number of restarts; set for the ranks by the process that restarts the job.
constexpr char kStarts[] = "WEFT_TRAIN_STARTS";

// Parses --kill rank:step, whose format was checked.
std::pair<long, long> rank_and_step(const std::string& kill) {
  return {std::atol(kill.c_str()), std::atol(&kill[kill.find(':') + 1])};
}

}  // namespace

bool restarted() {
  const char* starts = std::getenv(kStarts);
  return (starts != nullptr && std::atoi(starts) > 0) || std::getenv(kReplaces) != nullptr;
}

void check_restart(const RestartFlags& flags, const World& world, int steps) {
  if (flags.on() && std::getenv(kStarts) == nullptr)
    throw UsageError(fmt::format(
        "{} under a launcher ({}): it ends the job when a rank dies, and weft cannot start it "
        "again; let it start `weft train ... --resume` again, or leave it out: `weft train -N {}`",
        flags.elastic ? "--elastic" : fmt::format("--restart {}", flags.restarts),
        job_from_environment().launcher, world.size()));
  if (flags.kill.empty() || restarted()) return;
  const auto [rank, step] = rank_and_step(flags.kill);
  if (rank >= world.size() || step < 1 || step > steps)
    throw UsageError(
        fmt::format("--kill {}: nobody would die; the job has ranks 0 to {} and steps 1 to {}",
                    flags.kill, world.size() - 1, steps));
}

void die_on_purpose(const RestartFlags& flags, Rank rank, int step) {
  if (flags.kill.empty() || restarted()) return;
  if (rank_and_step(flags.kill) == std::pair<long, long>(rank, step)) raise(SIGKILL);
}

int run_again(const RestartFlags& flags, const JobFlags& job, const std::function<int()>& run,
              const std::function<bool()>& fewer) {
  if (launched()) return run();
  unsetenv(kStarts);
  if (flags.on()) setenv(kStarts, "0", 1);
  int code = run();
  for (int again = 1; code == kExitCritical && flags.on(); ++again) {
    if (flags.restarts > 0 && again > flags.restarts) break;
    if (flags.elastic && !fewer() && flags.restarts == 0) {
      fmt::print(stderr,
                 "weft train: the job failed, and there is no smaller one for --elastic to go on "
                 "with; --restart N also starts it again as it is\n");
      break;
    }
    fmt::print(stderr, "weft train: the job failed; start {}{} again, with {} rank{}\n", again,
               flags.restarts > 0 ? fmt::format(" of {}", flags.restarts) : "", job.ranks,
               job.ranks == 1 ? "" : "s");
    setenv(kStarts, std::to_string(again).c_str(), 1);
    code = run();
  }
  return code;
}

}  // namespace weft
