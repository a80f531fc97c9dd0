// The machine that this process runs on, for predictions.
#pragma once

#include "coll/machine.h"

namespace weft {

// The preset "cpu" with the rates of this host: the rate of its slowest NIC, if the kernel knows
// it, and of reductions and copies on a core, which are measured in 0.1 s. Latencies and the cost
// of a message are the preset's. Throws what choose_rails() throws.
Machine this_machine();

}  // namespace weft
