// Plays a trace for real: the ranks of a World make its calls and wait as long as it computes.
#pragma once

#include "coll/api/communicator.h"
#include "perf/replay/heartbeat.h"
#include "perf/replay/ledger.h"
#include "perf/replay/trace.h"

namespace weft::replay {

struct PlayOptions {
  double compute_scale = 1;
  bool busy = false;  // the core computes: calls move only as they do beside a program's own work
  int steps = 3;      // that are timed, after one that is not
  Heartbeat* heartbeat = nullptr;  // nullptr: nobody listens
};

// Plays the trace, whose ranks are the World's first ones; others wait. Every rank calls play(),
// and gets the same result: the median step (of the slowest rank), and what the calls of that step
// took. Throws
// JobFailed.
Played play(World& world, const JobTrace& trace, const PlayOptions& options);

// Throws UsageError on all ranks where one rank has read another trace.
void check_same_trace(World& world, const JobTrace& trace);

}  // namespace weft::replay
