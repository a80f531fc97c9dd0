// Describes the machine on which this process runs, for predictions.
#pragma once

#include "coll/machine.h"

namespace weft {

// Returns the preset "cpu" with the rates of this host: the rate of its slowest NIC, if the kernel
// reports it, and the rates at which a core reduces and copies memory, measured by this call in 0.1
// s. Latencies and the cost of a message are taken from the preset. Throws the errors of
// choose_rails().
Machine this_machine();

}  // namespace weft
