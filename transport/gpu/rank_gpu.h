// Assigns a GPU to each rank.
#pragma once

#include "topo/topology.h"
#include "transport/gpu/device.h"

namespace weft {

// Returns this rank's GPU, in this process's numbering: the GPU in its Place (selected by the
// program; the rail is chosen for it), otherwise the GPU nearest to its rail, with the machine's
// ranks distributed over the device's GPUs (topo/near.h).
int gpu_of_rank(const Topology& topology, Rank me, const Device& device);

}  // namespace weft
