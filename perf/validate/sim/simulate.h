// Tests a simulated fleet with known faults, and compares what was found with them.
#pragma once

#include <cstdint>
#include <vector>

#include "perf/validate/facts/facts.h"
#include "perf/validate/locate/conduct.h"
#include "perf/validate/sim/sim_fabric.h"

namespace weft::fabric {

struct SimulateOptions {
  SimOptions fabric;      // with faults of the caller's choice
  int random_faults = 0;  // further ones, drawn from fabric.seed
  PlanOptions plan;
  Thresholds thresholds;
  EachMinute each_minute;  // of a soak
};

// What a report needs of a simulated run, and how right it was.
struct Simulated {
  std::vector<FleetHost> hosts;
  FleetFacts facts;  // names, rates, MTUs and addresses of the ports; no counters
  Conducted conducted;
  int streams = 1;  // of a flow
  std::vector<SimFault> faults;
  std::vector<bool> named;  // by fault: a cause has its kind and place
  int wrong_causes = 0;     // that name no fault
  double virtual_s = 0;     // from the first round to the last
  bool right() const;       // all faults named, and nothing else
};

// Throws Error where a fault's place does not exist.
Simulated simulate_fleet(const SimulateOptions& options);

// What simulated hosts say of themselves after `seconds`: names, rates, MTUs and addresses. Ports
// that do not know their rate have `rate_gbps`.
FleetFacts facts_of(const std::vector<FleetHost>& hosts, double rate_gbps, double seconds);

// Faults of all kinds that localisation can name, at hosts and rails that differ: no fault hides
// another one. Black holes of one path only in fleets whose plan has a flow on every path.
std::vector<SimFault> random_faults(const SimOptions& fabric, int count, std::uint64_t seed);

// Whether the cause has the kind and the place of the fault, as far as flows can tell. Of two hosts
// the path between them is the place.
bool names(const Cause& cause, const SimFault& fault, const SimOptions& fabric);

}  // namespace weft::fabric
