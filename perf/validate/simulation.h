// A validation of a fleet that is not there: the plan, localisation, checks and report of a real
// one, over a simulated fabric in virtual time.
#pragma once

#include <string>
#include <vector>

#include "perf/validate/facts/policy.h"
#include "perf/validate/probes/plan.h"
#include "perf/validate/report/report.h"

namespace weft::fabric {

struct SimulationOptions {
  int hosts = 8, rails = 2;
  double rate_gbps = 400;  // of every port, declared
  int random_faults = 0;   // drawn from plan.seed
  PlanOptions plan;        // the budget is virtual time
  Policy policy;
};

struct Simulation {
  Report report;
  std::vector<std::string> injected;  // a line for each fault, and whether a cause names the fault
};

Simulation simulate(const SimulationOptions& options);

}  // namespace weft::fabric
