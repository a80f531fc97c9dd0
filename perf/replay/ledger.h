// Accounts for one rank's time while a trace is played, in real or in virtual time.
//
// A call is exposed while it is posted, not done, and the rank does not compute. If several calls
// are exposed at once, that time is divided among them in proportion to their `alone_us`, so that
// the parts add up to the step.
#pragma once

#include <cstddef>
#include <map>
#include <vector>

#include "perf/replay/trace.h"

namespace weft::replay {

struct Tally {
  double calls = 0, time_us = 0, exposed_us = 0, alone_us = 0;
};

class Ledger {
 public:
  explicit Ledger(const std::vector<CallKey>& keys) : keys_(&keys), tallies_(keys.size()) {}

  void compute(bool computes, double now_us);
  // Returns a handle for done().
  int post(const CallKey& key, double now_us);
  void done(int call, double now_us);

  const std::vector<Tally>& tallies() const { return tallies_; }  // times and calls, by key
  double compute_us() const { return compute_us_; }

 private:
  struct Posted {
    std::size_t key;
    double at_us, idle_us, share_us;
  };
  void move(double now_us);

  const std::vector<CallKey>* keys_;
  std::vector<Tally> tallies_;
  std::map<int, Posted> open_;
  int next_ = 0;
  bool computes_ = false;
  double at_us_ = 0, compute_us_ = 0;
  double idle_us_ = 0;   // time without computation so far
  double share_us_ = 0;  // integral of (idle time / number of open calls)
};

// A row of the report: a collective and size in a group.
struct Row {
  CallKey key;
  double calls = 0;  // number in the job: one per collective or message, not per rank
  double time_us = 0, exposed_us = 0;  // times per call: mean over calls and ranks
  double share_of_step = 0;            // exposed fraction of a rank's step; mean over ranks
};

struct Played {
  double step_us = 0;     // time of the step on the slowest rank
  double compute_us = 0;  // mean over ranks
  std::vector<Row> rows;  // one row per key, in the order of keys_of()
};

// Makes the rows of one step. `sums` has the tallies of that step, summed over `ranks` ranks;
// `calls_of_job` has the number of calls of each key in the job.
Played summarize(const std::vector<CallKey>& keys, const std::vector<Tally>& sums, int ranks,
                 double compute_us, double step_us, const std::vector<double>& calls_of_job);

// Returns the number of calls of each key in a job; a collective of a list of ranks counts once.
std::vector<double> calls_of(const JobTrace& trace, const std::vector<CallKey>& keys);

}  // namespace weft::replay
