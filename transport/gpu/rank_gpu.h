// The GPU of each rank.
#pragma once

#include "topo/topology.h"
#include "transport/gpu/device.h"

namespace weft {

// Returns the GPU, in this process's numbering, that this process's rank takes: the one that its
// place names (the program has chosen it, and the rail follows), else the one nearest to its rail
// of those that the device has, which ranks of one machine share out (topo/near.h).
int gpu_of_rank(const Topology& topology, Rank me, const Device& device);

}  // namespace weft
