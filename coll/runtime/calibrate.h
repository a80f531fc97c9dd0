// Measures, once per job, the latency and bandwidth of each link class. It is independent of how
// the selector uses the figures.
#pragma once

#include "topo/base/status.h"

namespace weft {

struct Core;
struct GroupState;

// Measures short and a few long messages between pairs of ranks on a host, and between hosts along
// each rail, and puts the medians over all ranks into core.machine and core.costs, the same on
// every rank. Every rank calls it at the same point with the group of all ranks. With a declared
// rate of rails, it measures no bandwidth of rails.
Status calibrate(Core& core, GroupState& world);

// The declared rate of a rail in Gb/s: `asked` if it is positive, else WEFT_RAIL_GBPS, else 0.
// Throws Error if the variable is not a rate.
double declared_rail_gbps(double asked);

}  // namespace weft
