// Validates a simulated fleet: the same plan, localization, checks and report as for a real fleet,
// on a simulated fabric in virtual time.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "perf/validate/facts/policy.h"
#include "perf/validate/probes/plan.h"
#include "perf/validate/report/report.h"
#include "perf/validate/world_score.h"

namespace weft::fabric {

struct SimulationOptions {
  int hosts = 8, rails = 2;
  double rate_gbps = 400;  // declared rate of every port
  int random_faults = 0;   // drawn from plan.seed
  std::string world;       // name of a world; empty: the plain fleet
  PlanOptions plan;        // the budget is virtual time
  Policy policy;
  std::function<void(const std::string&)> soak_line;  // receives one line per minute
};

struct Simulation {
  Report report;
  std::vector<std::string> injected;  // one line per fault: what it is, and whether it was named
  std::optional<WorldScore> score;    // for a world only
};

// Throws Error if there is no such world.
Simulation simulate(const SimulationOptions& options);

}  // namespace weft::fabric
