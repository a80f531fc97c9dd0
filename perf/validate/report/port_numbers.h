// What the samples say of each port and each directed path: the numbers of the tables, pictures,
// metrics and baselines.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "perf/validate/report/report.h"

namespace weft::fabric {

// Numbers of a directed pair of ports; rates and latencies are medians over its flows.
struct PathNumbers {
  Port from, to;
  bool reached = true;  // some flow arrived
  std::string error;    // of a flow that did not
  std::optional<double> gbps;
  std::optional<double> p50_us;
  double expected_gbps = 0;  // of the slower port; 0: not known
};

// A row for every port of the fleet, by host and rail. Flows to or from ports that the fleet does
// not have are left out. A report that was read has its rows as they were written.
std::vector<PortNumbers> port_numbers(const Report& report);

// A row for every pair of ports with a flow of the probes kRate, kLatency or kReach, by rail of the
// sender, sender and receiver.
std::vector<PathNumbers> path_numbers(const Report& report);

}  // namespace weft::fabric
