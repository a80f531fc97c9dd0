// Makes a trace playable on fewer ranks than its job had, and on buffers of this machine's size.
#pragma once

#include <cstdint>

#include "perf/replay/trace.h"

namespace weft::replay {

// Returns the trace for `ranks` ranks; the same trace where it has no more.
//
// A job whose ranks are all alike keeps its groups' kinds: each is cut to the largest size that
// divides `ranks`, neighbours stay neighbours, and others take the widest steps. Otherwise rank r
// plays rank r * N / ranks of the job's N: groups keep the ranks that are played, and messages
// with others are counted and left out. Messages keep their bytes.
JobTrace fold(const JobTrace& trace, int ranks);

// Cuts messages of more than `most` bytes to `most`.
void cut_messages(JobTrace& trace, std::uint64_t most);

}  // namespace weft::replay
