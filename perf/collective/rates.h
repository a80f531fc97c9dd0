// Measures the rates for the lower bounds: of this machine's memory, and of the rails between
// hosts. Both calls are collective over the world.
#pragma once

#include <cstdint>

#include "coll/api/communicator.h"
#include "perf/collective/exercise.h"
#include "perf/predict/bound.h"

namespace weft {

// Measures memory that the first `writers` ranks write concurrently, in buffers of about `bytes`
// (at least 64 KiB), which the call allocates. Requires that all ranks share a machine.
MemoryRate measure_memory(World& world, Communicator& comm, std::uint64_t bytes, int writers);

// Measures the rate of one rail, one way, with all rails busy both ways: rank l of hosts 0, 2, ...
// exchanges with rank l of hosts 1, 3, ... by send and recv. Returns 0 with fewer than two hosts.
RailRate measure_rails(World& world, Communicator& comm);

}  // namespace weft
