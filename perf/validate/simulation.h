// Validates a simulated fleet: the same plan, localization, checks and report as for a real fleet,
// on a simulated fabric in virtual time.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "perf/validate/facts/policy.h"
#include "perf/validate/probes/plan.h"
#include "perf/validate/report/report.h"
#include "perf/validate/sim/simulate.h"

namespace weft::fabric {

struct SimulationOptions {
  int hosts = 8, rails = 2;
  double rate_gbps = 400;  // declared rate of every port
  int random_faults = 0;   // drawn from plan.seed
  PlanOptions plan;        // the budget is virtual time
  Policy policy;
  std::function<void(const std::string&)> soak_line;  // receives one line per minute
};

struct Simulation {
  Report report;
  std::vector<std::string> injected;  // one line per fault: the fault, and whether it was named
};

Simulation simulate(const SimulationOptions& options);
// Returns the report of a run on a simulated fabric of any kind.
Report report_of(const SimulationOptions& options, Simulated run);

}  // namespace weft::fabric
