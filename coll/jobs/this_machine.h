// The machine that this process runs on, for predictions.
#pragma once

#include "coll/machine.h"

namespace weft {

// The preset "cpu" with the rates of this host: its slowest NIC, if the kernel knows its rate, and
// how fast a core reduces and copies memory, measured now, which takes 0.1 s. Latencies and the
// cost of a message are the preset's. Throws what choose_rails() throws.
Machine this_machine();

}  // namespace weft
