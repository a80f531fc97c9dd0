// Binds a rank of a local job to cores.
#pragma once

#include "topo/base/status.h"

namespace weft {

// Binds this process to the rank's share of the cores that the process may use: a block of cores
// where there are more cores than ranks, else one core, in turn. Ignores a refusal by the kernel.
void bind_to_share(Rank rank, int ranks);

}  // namespace weft
