// Validates a fleet in a world, and scores the report.
#pragma once

#include <string>
#include <vector>

#include "perf/validate/simulation.h"
#include "perf/validate/worlds/world_score.h"

namespace weft::fabric {

struct WorldRun {
  Report report;
  std::vector<std::string> injected;  // one line per fault: what it is, and whether it was named
  WorldScore score;
};

// Throws Error if there is no such world.
WorldRun run_world(const std::string& name, const SimulationOptions& options);

}  // namespace weft::fabric
