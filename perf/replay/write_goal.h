// A job's messages as GOAL, the text that LogGOPSim and ATLAHS simulate.
#pragma once

#include <string>

#include "perf/replay/costs.h"
#include "perf/replay/trace.h"

namespace weft::replay {

// Throws Error where the text would be too long.
std::string goal_of(const JobTrace& trace, const ReplayFabric& fabric);

}  // namespace weft::replay
