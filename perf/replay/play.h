// Plays a trace in real time: the ranks of a World make its calls, and wait or spin for its
// computations.
#pragma once

#include "coll/api/communicator.h"
#include "perf/replay/heartbeat.h"
#include "perf/replay/ledger.h"
#include "perf/replay/trace.h"

namespace weft::replay {

struct PlayOptions {
  double compute_scale = 1;
  // true: spin during computations, like a program that uses its core.
  bool busy = false;
  int steps = 3;                   // number of timed steps, which follow one untimed step
  Heartbeat* heartbeat = nullptr;  // nullptr: none
};

// Plays the trace on the first ranks of the World; the other ranks wait. Collective: every rank
// calls play() and gets the same result: the median step (of the slowest rank) and the times of the
// calls in that step. Throws JobFailed.
Played play(World& world, const JobTrace& trace, const PlayOptions& options);

// Throws UsageError on all ranks if one rank has read a different trace.
void check_same_trace(World& world, const JobTrace& trace);

}  // namespace weft::replay
