// Writes a job's messages as GOAL, the input of the simulators LogGOPSim and ATLAHS.
#pragma once

#include <string>

#include "perf/replay/costs.h"
#include "perf/replay/trace.h"

namespace weft::replay {

// Throws Error if the text would be too long.
std::string goal_of(const JobTrace& trace, const ReplayFabric& fabric);

}  // namespace weft::replay
