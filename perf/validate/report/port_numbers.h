// What the samples say of each port and each directed path: the numbers of the tables, pictures,
// metrics and baselines.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "perf/validate/report/report.h"

namespace weft::fabric {

// Numbers of a port. Rates are medians over its flows of Probe::kRate; a flow that did not arrive
// counts as 0. Latencies are medians over the flows of Probe::kLatency that the port sends.
struct PortNumbers {
  Port port;
  std::string host, device;
  std::optional<double> expected_gbps;
  std::optional<double> transmit_gbps, receive_gbps;
  std::optional<double> lowest_gbps;       // of any window of any flow that the port sends
  std::optional<double> p50_us, p99_us, p999_us;
  std::optional<double> loss_per_packet;   // of all packets that the port sends: retransmitted ones
};

// Numbers of a directed pair of ports; rates and latencies are medians over its flows.
struct PathNumbers {
  Port from, to;
  bool reached = true;  // some flow arrived
  std::string error;    // of a flow that did not
  std::optional<double> gbps, lowest_gbps;
  std::optional<double> p50_us, p99_us, p999_us;
  std::optional<double> loss_per_packet;
  double expected_gbps = 0;  // of the slower port; 0: not known
};

// A row for every port of the fleet, by host and rail. Flows to or from ports that the fleet does
// not have are left out.
std::vector<PortNumbers> port_numbers(const Report& report);

// A row for every pair of ports with a flow of the probes kRate, kLatency or kReach, by rail of the
// sender, sender and receiver.
std::vector<PathNumbers> path_numbers(const Report& report);

// A path or port below the policy's limits, from worst to best: unreached, failed, warned, healthy,
// not known.
enum class Health { kUnreached, kFailed, kWarned, kHealthy, kNotKnown };
Health health_of(std::optional<double> gbps, double expected_gbps, const Thresholds& thresholds);
std::string_view word_of(Health health);  // "unreached"

}  // namespace weft::fabric
