// Numbers of each port and directed path, from the samples: for tables, charts, metrics and
// baselines.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "perf/validate/report/report.h"

namespace weft::fabric {

// Numbers of a directed pair of ports; rates and latencies are medians over its flows.
struct PathNumbers {
  Port from, to;
  bool reached = true;  // at least one flow arrived
  std::string error;    // error of one flow that did not arrive
  std::optional<double> gbps;
  std::optional<double> p50_us;
  double expected_gbps = 0;  // rate of the slower port; 0: unknown
};

// Returns one row per port of the fleet, by host and rail. Flows to or from unknown ports are left
// out. For a report read from a file, returns its stored rows.
std::vector<PortNumbers> port_numbers(const Report& report);

// Returns one row per pair of ports with a flow of kRate, kLatency or kReach, by rail of the
// sender, sender and receiver.
std::vector<PathNumbers> path_numbers(const Report& report);

}  // namespace weft::fabric
