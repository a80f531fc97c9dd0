// Makes a trace playable on fewer ranks than its job had, and on buffers of this machine's size.
#pragma once

#include <cstdint>

#include "perf/replay/trace.h"

namespace weft::replay {

// Returns the trace for `ranks` ranks. A trace of at most `ranks` ranks is returned unchanged.
//
// If all ranks of the job are alike, every group is cut to the largest size that divides `ranks`:
// ranks of neighboring groups remain neighbors, and other groups get the widest stride. Otherwise
// rank r plays rank r * N / ranks of the job's N: groups keep the played ranks, and messages with
// ranks that are not played are counted and left out. Messages keep their bytes.
JobTrace fold(const JobTrace& trace, int ranks);

// Cuts messages of more than `most` bytes to `most`.
void cut_messages(JobTrace& trace, std::uint64_t most);

}  // namespace weft::replay
