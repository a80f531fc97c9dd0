// What a link costs here, measured once per job: latency and bandwidth of each link class.
#pragma once

#include "topo/base/status.h"

namespace weft {

struct Core;
struct GroupState;

// Every rank calls it at the same point, with the group of all ranks. Short messages and a few
// long ones between neighbours of a host, and between hosts along each rail; the medians over
// all ranks become core.costs, the same on every rank. A declared rate of the rails is not
// measured.
Status calibrate(Core& core, GroupState& world);

// `asked` (a flag, WorldOptions::rail_gbps), else WEFT_RAIL_GBPS; 0 where there is neither. Throws
// Error where the variable is no rate.
double declared_rail_gbps(double asked);

}  // namespace weft
