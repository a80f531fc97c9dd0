// Compares the lanes of each link with those of the other ports: a cable with four lanes may train
// with one or two.
#include <algorithm>
#include <map>

#include "perf/validate/checks/check.h"

namespace weft::fabric {
namespace {

// No cable of InfiniBand has a single lane but by a fault.
constexpr int kBaselineLanes = 4;

Judged link_width(const Check& check, const Observed& observed) {
  std::map<int, std::vector<int>> lanes;  // by rail
  for (const HostFacts& host : observed.facts.hosts)
    for (const PortFacts& port : host.ports)
      if (port.width_lanes && !excluded(observed, port))
        lanes[port.rail].push_back(*port.width_lanes);
  for (auto& [rail, all] : lanes) std::ranges::sort(all);
  return each_port(observed, [&](const HostFacts& host, const PortFacts& port) -> Outcome {
    if (!port.width_lanes || is_soft(port)) return std::nullopt;
    const std::vector<int>& all = lanes[port.rail];
    const int baseline = all[all.size() / 2];
    const bool single = *port.width_lanes == 1 && is_infiniband(port);
    if (*port.width_lanes >= baseline && !single) return std::vector<Finding>{};
    Finding finding = make_finding(check, at_port(host, port));
    finding.unit = Unit::kCount;
    finding.value = *port.width_lanes;
    finding.expected = *port.width_lanes < baseline ? baseline : kBaselineLanes;
    if (port.rate_gbps)
      finding.evidence.push_back(
          number_evidence("rate", finding.where, *port.rate_gbps, kNoNumber, Unit::kGbps));
    return std::vector{finding};
  });
}

constexpr Check kLaneRows[] = {
    {"link-width", CheckKind::kPassive, Severity::kFail, "all lanes of the link are up",
     "sysfs infiniband rate: 100 Gb/sec (1X NDR)", "as most ports of the rail, never 1X",
     "The link came up with fewer lanes than those of the other ports of its rail, so the port has "
     "a half or a quarter of its rate, whatever the speed of a lane.",
     "Reseat the cable at both ends, and clean or replace it. `mlxlink -d DEVICE -c` says which "
     "lane is bad.",
     link_width},
};

}  // namespace

std::span<const Check> lane_checks() { return kLaneRows; }

}  // namespace weft::fabric
