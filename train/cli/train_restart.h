// Restarts of `weft train`: after a rank died, the job restarts from the last checkpoint, with the
// same number of ranks or fewer. Does not depend on the model.
#pragma once

#include <functional>
#include <string>

#include "coll/jobs/session.h"

namespace weft {

struct RestartFlags {
  int restarts = 0;  // --restart: maximum number of restarts
  // --elastic: each restart may have fewer replicas; without --restart: any number of restarts.
  bool elastic = false;
  std::string kill;  // --kill rank:step, for tests; empty: no rank

  bool on() const { return restarts > 0 || elastic; }
};

// Returns whether this job is a restart, or this rank replaces a killed rank.
bool restarted();
// Checks the flags on a rank. Throws UsageError for restarts under a launcher, since launchers end
// a job that lost a rank, and if --kill names no rank or step of this job.
void check_restart(const RestartFlags& flags, const World& world, int steps);

// Executes --kill, in the job's first run only: kills this process at that rank and step.
void die_on_purpose(const RestartFlags& flags, Rank rank, int step);

// Calls run() once if a launcher started this process; otherwise again after each failure of the
// job, up to the limit of the flags. With --elastic, fewer() first shrinks the job, or returns
// false if no smaller job is possible. Returns the last run's exit code.
int run_again(const RestartFlags& flags, const JobFlags& job, const std::function<int()>& run,
              const std::function<bool()>& fewer);

}  // namespace weft
