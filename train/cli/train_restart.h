// What `weft train` does about ranks that die: it starts the job again, with as many ranks or
// fewer. Knows no model; what was done so far is in the checkpoints.
#pragma once

#include <functional>
#include <string>

#include "coll/jobs/session.h"

namespace weft {

struct RestartFlags {
  int restarts = 0;      // --restart: so many times at most
  bool elastic = false;  // with fewer replicas each time; alone: as long as there are fewer
  std::string kill;      // --kill rank:step, for tests; empty: nobody

  bool on() const { return restarts > 0 || elastic; }
};

// Whether this is a rank of a job that was started again.
bool restarted();

// On a rank. Throws UsageError where somebody else's launcher started it, which then decides what
// becomes of a job that lost a rank, and where --kill names no rank or step of this job.
void check_restart(const RestartFlags& flags, const World& world, int steps);

// --kill, in the first life of the job: does not return where it is this rank's turn.
void die_on_purpose(const RestartFlags& flags, Rank rank, int step);

// run() by itself where a launcher has started this process. Else run(), and again after the job
// failed, as often as the flags say. With --elastic, fewer() first makes it a job of fewer ranks;
// false: there is none. Returns the last run's exit code.
int run_again(const RestartFlags& flags, const JobFlags& job, const std::function<int()>& run,
              const std::function<bool()>& fewer);

}  // namespace weft
