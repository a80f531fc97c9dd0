// Compares the lanes and rate of each link with similar ports: a cable with four lanes may train
// with one or two, and a port at a lower speed than the other rails.
#include <algorithm>
#include <map>

#include "perf/validate/checks/check.h"

namespace weft::fabric {
namespace {

// A single lane on InfiniBand is always a fault: cables have four.
constexpr int kBaselineLanes = 4;

// A port that is down has no meaningful rate or lanes.
bool is_active(const PortFacts& port) {
  return !port.state || port.state->find("ACTIVE") != std::string::npos;
}
double gbps_of(const PortFacts& port) {
  return is_active(port) && port.rdma && !is_soft(port) ? port.rate_gbps.value_or(0) : 0;
}
int lanes_of(const PortFacts& port) {
  return is_active(port) && !is_soft(port) ? port.width_lanes.value_or(0) : 0;
}

Judged link_width(const Check& check, const Observed& observed) {
  const double baseline_gbps = baseline_of(observed, gbps_of);
  std::map<int, std::vector<int>> lanes;  // lanes of ports, by rail
  std::map<int, double> most_gbps;        // maximum rate of any port, by rail
  for (const HostFacts& host : observed.facts.hosts)
    for (const PortFacts& port : host.ports) {
      most_gbps[port.rail] = std::max(most_gbps[port.rail], gbps_of(port));
      if (lanes_of(port) > 0 && !excluded(observed, port))
        lanes[port.rail].push_back(lanes_of(port));
    }
  for (auto& [rail, all] : lanes) std::ranges::sort(all);
  return each_port(observed, [&](const HostFacts& host, const PortFacts& port) -> Outcome {
    const int own = lanes_of(port);
    const double gbps = gbps_of(port);
    if (own == 0 && gbps <= 0) return std::nullopt;
    Finding finding = make_finding(check, at_port(host, port));
    if (own > 0) {
      const std::vector<int>& all = lanes[port.rail];
      const int baseline = all[all.size() / 2];
      if (own < baseline || (own == 1 && is_infiniband(port))) {
        set_number(finding, Unit::kCount, own, own < baseline ? baseline : kBaselineLanes);
        if (port.rate_gbps) add_number(finding, "rate", *port.rate_gbps, Unit::kGbps);
        return std::vector{finding};
      }
    }
    // link-rate already reports a single slow port of a rail, and ports with a known maximum.
    if (gbps <= 0 || port.most_rate_gbps || gbps >= baseline_gbps || gbps < most_gbps[port.rail])
      return std::vector<Finding>{};
    set_number(finding, Unit::kGbps, gbps, baseline_gbps);
    if (own > 0) add_count(finding, "width_lanes", own);
    return std::vector{finding};
  });
}

constexpr Check kLaneRows[] = {
    {"link-width", CheckKind::kPassive, Severity::kFail,
     "link is as wide and as fast as those of like ports",
     "sysfs infiniband rate: 100 Gb/sec (1X NDR)",
     "lanes of most ports of the rail, never 1X; the rate of most ports of the job",
     "The link came up with fewer or slower lanes than those of like ports, so the port has a half "
     "or a quarter of its rate.",
     "Reseat the cable and the transceiver at both ends, and compare the speed that is set at the "
     "switch port. A cable with a dead lane trains narrow until it is replaced; `mlxlink -d DEVICE "
     "-c` says which lane is bad.",
     link_width},
};

}  // namespace

std::span<const Check> lane_checks() { return kLaneRows; }

}  // namespace weft::fabric
