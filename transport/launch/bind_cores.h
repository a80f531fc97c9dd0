// Binds a rank of a local job to cores.
#pragma once

#include "topo/base/status.h"

namespace weft {

// Binds this process to the rank's share of the process's allowed cores: a block of cores if there
// are more cores than ranks, otherwise one core, assigned round robin. Ignores errors.
void bind_to_share(Rank rank, int ranks);

}  // namespace weft
