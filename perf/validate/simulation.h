// A validation of a fleet that is not there: the plan, localisation, checks and report of a real
// one, over a simulated fabric in virtual time.
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
  double rate_gbps = 400;  // of every port, declared
  int random_faults = 0;   // drawn from plan.seed
  std::string world;       // its name; empty: the plain fleet
  PlanOptions plan;        // the budget is virtual time
  Policy policy;
  std::function<void(const std::string&)> soak_line;  // gets a line a minute
};

struct Simulation {
  Report report;
  std::vector<std::string> injected;  // a line for each fault, and whether the fault was named
  std::optional<WorldScore> score;    // of a world
};

// Throws Error where there is no such world.
Simulation simulate(const SimulationOptions& options);

}  // namespace weft::fabric
