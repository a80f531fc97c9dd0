// Plays a trace in virtual time, from what each of its calls takes alone.
//
// The model. A rank computes one thing at a time, and issues the calls of a group in one order, as
// a stream does. A call begins when all of its ranks have posted it. Calls that are under way at a
// rank at the same time share its links: of n calls over rails (or inside hosts) each runs at 1/n
// of its speed, judged at its busiest rank. Knows no fabric.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "perf/replay/ledger.h"
#include "perf/replay/trace.h"

namespace weft::replay {

struct CallCost {
  double us = 0;       // alone
  bool rails = false;  // it leaves hosts
};
// What a call of these ranks takes.
using CostOf = std::function<CallCost(const TraceNode&, const std::vector<Rank>&)>;

// compute_scale: of the times that computations take. Throws Error naming a rank that waits, and
// for what, where the job does not end, and where the calls of a group are not the same.
Played play_virtually(const JobTrace& trace, const CostOf& cost, double compute_scale = 1);

}  // namespace weft::replay
