// Restarts of `weft train`: after a rank died, the job starts again with as many ranks or fewer,
// from the last checkpoint. This code knows no model.
#pragma once

#include <functional>
#include <string>

#include "coll/jobs/session.h"

namespace weft {

struct RestartFlags {
  int restarts = 0;      // --restart: most restarts
  bool elastic = false;  // --elastic: each restart has fewer replicas; alone: no other limit
  std::string kill;      // --kill rank:step, for tests; empty: no rank

  bool on() const { return restarts > 0 || elastic; }
};

// Returns whether this rank's job is a restart, or the rank replaces one that was killed.
bool restarted();
// Checks the flags on a rank. Throws UsageError for restarts under a launcher, which ends a job
// that lost a rank by itself, and where --kill names no rank or step of this job.
void check_restart(const RestartFlags& flags, const World& world, int steps);

// Executes --kill in the first run of the job: ends this process at the named rank and step.
void die_on_purpose(const RestartFlags& flags, Rank rank, int step);

// Calls run() once where a launcher has started this process; else again after each failure of the
// job, as often as the flags say. With --elastic, fewer() first shrinks the job, or returns false
// where no smaller job is possible. Returns the last run's exit code.
int run_again(const RestartFlags& flags, const JobFlags& job, const std::function<int()>& run,
              const std::function<bool()>& fewer);

}  // namespace weft
