// Measures what the lower bounds are made of: this machine's memory and the rails between hosts.
// Collective calls: every rank of the world takes part.
#pragma once

#include <cstdint>

#include "coll/api/communicator.h"
#include "perf/collective/exercise.h"
#include "perf/predict/bound.h"

namespace weft {

// The first `writers` ranks at once, on buffers of about `bytes` (at least 64 KiB) allocated here.
// Only where all ranks share a machine.
MemoryRate measure_memory(World& world, Communicator& comm, std::uint64_t bytes, int writers);

// Rate of one rail, one way, with all rails busy both ways: rank l of hosts 0, 2, ... exchanges
// with rank l of hosts 1, 3, ... by plain send and recv. 0 with fewer than two hosts.
RailRate measure_rails(World& world, Communicator& comm);

}  // namespace weft
