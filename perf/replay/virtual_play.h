// Plays a trace in virtual time, from the time that each call takes alone.
//
// Model: a rank runs one computation at a time, and issues the calls of a group in order, as a CUDA
// stream does. A call begins when all its ranks have posted it. Concurrent calls of a rank share
// its links: each of n calls over rails (or inside hosts) runs at 1/n of its speed, with n taken at
// its busiest rank. Does not depend on a fabric.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "perf/replay/ledger.h"
#include "perf/replay/trace.h"

namespace weft::replay {

struct CallCost {
  double us = 0;       // time of the call if it runs alone
  bool rails = false;  // the call uses rails, not only memory of hosts
};
// Returns the cost of a call of these ranks.
using CostOf = std::function<CallCost(const TraceNode&, const std::vector<Rank>&)>;

// compute_scale multiplies the times of computations. Throws Error naming a blocked rank and its
// call if the job deadlocks or if the calls of a group differ between ranks.
Played play_virtually(const JobTrace& trace, const CostOf& cost, double compute_scale = 1);

}  // namespace weft::replay
