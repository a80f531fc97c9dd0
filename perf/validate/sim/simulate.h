// Tests a simulated fleet with known faults, and scores the results.
#pragma once

#include <cstdint>
#include <vector>

#include "perf/validate/conduct/conduct.h"
#include "perf/validate/facts/facts.h"
#include "perf/validate/sim/sim_fabric.h"

namespace weft::fabric {

struct SimulateOptions {
  SimOptions fabric;      // the fabric with the caller's faults
  int random_faults = 0;  // additional faults, drawn from fabric.seed
  PlanOptions plan;
  Thresholds thresholds;
  EachMinute each_minute;  // during a soak
};

// A simulated run, with the input of a report and the score.
struct Simulated {
  std::vector<FleetHost> hosts;
  FleetFacts facts;  // names, rates, MTUs and addresses of the ports; no counters
  Conducted conducted;
  int streams = 1;  // number of streams per flow
  std::vector<SimFault> faults;
  std::vector<bool> named;  // by fault: whether a cause has the fault's kind and place
  int wrong_causes = 0;     // causes that match no fault
  double virtual_s = 0;     // duration of the run in virtual time
  bool right() const;       // true if causes name all faults, and nothing else
};

// Throws Error if a fault's place does not exist.
Simulated simulate_fleet(const SimulateOptions& options);

// Returns the facts of simulated hosts after `seconds`: names, rates, MTUs and addresses. Ports
// without a known rate get `rate_gbps`.
FleetFacts facts_of(const std::vector<FleetHost>& hosts, double rate_gbps, double seconds);

// Returns random faults of all kinds that localization can name, on distinct hosts and rails, so
// that none hides another. Black holes of single paths occur only in fleets whose plan covers all
// paths.
std::vector<SimFault> random_faults(const SimOptions& fabric, int count, std::uint64_t seed);

// Returns whether the cause has the kind and place of the fault, as far as flows can show. With two
// hosts, the place is the path between them.
bool names(const Cause& cause, const SimFault& fault, const SimOptions& fabric);

}  // namespace weft::fabric
