// Which cores a rank of a local job keeps to.
#pragma once

#include "topo/base/status.h"

namespace weft {

// Binds this process to rank's share of the cores that it may use: with more cores than ranks a
// block of its own, otherwise one core, in turn. A wish: where it is refused, nothing changes.
void bind_to_share(Rank rank, int ranks);

}  // namespace weft
