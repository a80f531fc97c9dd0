// The links of ports: up, at full rate, and uninterrupted.
#include <algorithm>
#include <array>
#include <cmath>
#include <map>

#include "perf/validate/checks/counters.h"
#include "perf/validate/probes/statistics.h"

namespace weft::fabric {
namespace {

bool contains(const std::string& text, std::string_view part) {
  return text.find(part) != std::string::npos;
}

Outcome judge_link_state(const Check& check, const HostFacts& host, const PortFacts& port) {
  const Where where = at_port(host, port);
  const auto down = [&](const std::string& text, const char* expected) {
    return std::vector{text_finding(check, where, text, expected)};
  };
  if (!port.state && !port.phys_state && !port.operstate && !port.carrier) {
    if (!port.rdma && port.netdev.empty()) return std::nullopt;
    return std::vector{make_unknown(check, where)};
  }
  if (port.phys_state && !contains(*port.phys_state, "LinkUp"))
    return down(*port.phys_state, "LinkUp");
  if (port.state && !contains(*port.state, "ACTIVE")) return down(*port.state, "ACTIVE");
  // An InfiniBand port works even if its network interface is down.
  if (is_infiniband(port)) return std::vector<Finding>{};
  static constexpr std::array kDown = {"down", "lowerlayerdown", "notpresent", "dormant",
                                       "testing"};
  if (port.operstate && std::ranges::find(kDown, *port.operstate) != kDown.end())
    return down(*port.operstate, "up");
  if (port.carrier == false) return down("no carrier", "carrier");
  return std::vector<Finding>{};
}

Judged link_state(const Check& check, const Observed& observed) {
  return each_port(observed, [&](const HostFacts& host, const PortFacts& port) {
    return judge_link_state(check, host, port);
  });
}

// Returns the declared rate, or else the port's maximum; nullopt: neither is known.
std::optional<double> required_rate(const Observed& observed, const PortFacts& port) {
  const std::optional<double> declared = observed.policy.declared_gbps(port.rail);
  return declared ? declared : port.most_rate_gbps;
}

constexpr double kRateTolerance = 0.99;  // accepted fraction of a required rate, for rounding

// Skips emulated wires and soft devices: their drivers invent a rate.
Outcome judge_link_rate(const Check& check, const Observed& observed, const HostFacts& host,
                        const PortFacts& port, double baseline_gbps, bool of_a_kind) {
  if (is_soft(port) || (host.emulated && !port.rdma)) return std::nullopt;
  const Where where = at_port(host, port);
  if (!port.rate_gbps) {
    if (!port.rdma) return std::nullopt;
    return std::vector{make_unknown(check, where)};
  }
  const std::optional<double> required = required_rate(observed, port);
  const bool below_required = required && *port.rate_gbps < kRateTolerance * *required;
  const bool short_of_baseline =
      !observed.policy.rate_gbps && *port.rate_gbps < kRateTolerance * baseline_gbps;
  if (!below_required && !short_of_baseline) return std::vector<Finding>{};
  Finding finding = make_finding(check, where);
  if (!below_required) finding.severity = of_a_kind ? Severity::kInfo : Severity::kWarn;
  set_number(finding, Unit::kGbps, *port.rate_gbps, below_required ? *required : baseline_gbps);
  if (port.width_lanes) add_number(finding, "width_lanes", *port.width_lanes, Unit::kCount, 0);
  return std::vector{finding};
}

Judged link_rate(const Check& check, const Observed& observed) {
  std::map<int, std::vector<double>> rates;
  for (const HostFacts& host : observed.facts.hosts)
    for (const PortFacts& port : host.ports)
      if (port.rate_gbps && !excluded(observed, port)) rates[port.rail].push_back(*port.rate_gbps);
  std::map<int, double> baseline, best;
  for (auto& [rail, all] : rates) {
    best[rail] = std::ranges::max(all);
    const double middle = median_of(all);
    const auto alike = std::ranges::count(all, middle);
    baseline[rail] = 2 * static_cast<std::size_t>(alike) > all.size() ? middle : 0;
  }
  const auto is_best = [&](const PortFacts& port) {
    return port.most_rate_gbps.value_or(best[port.rail]) >= kRateTolerance * best[port.rail];
  };
  return each_port(observed, [&](const HostFacts& host, const PortFacts& port) {
    // If one port advertises less than its rail, its cable may be wrong. If all ports of a host do,
    // the host is of another kind.
    const bool of_a_kind = host.ports.size() > 1 && std::ranges::none_of(host.ports, is_best);
    return judge_link_rate(check, observed, host, port, baseline[port.rail], of_a_kind);
  });
}

Judged link_flaps(const Check& check, const Observed& observed) {
  static constexpr std::array<std::string_view, 5> kNames = {
      "net.carrier_down_count", "net.carrier_changes", "eth.link_down_events_phy", "ib.link_downed",
      "hw.link_downed"};
  return each_port(observed, [&](const HostFacts& host, const PortFacts& port) {
    Outcome outcome =
        judge_counters(check, observed, host, port, {.names = kNames, .required = is_mlx5});
    if (!outcome) return outcome;
    // All counters count the same events; carrier_changes also counts link-up.
    for (Finding& finding : *outcome) {
      if (finding.unknown) continue;
      finding.value = 0;
      for (const Evidence& one : finding.evidence) {
        const double times =
            one.name == "net.carrier_changes" ? std::ceil(one.value / 2) : one.value;
        finding.value = std::max(finding.value, times);
      }
    }
    return outcome;
  });
}

constexpr Check kLinkRows[] = {
    {"link-state", CheckKind::kPassive, Severity::kFatal, "link is up",
     "sysfs infiniband state, phys_state; interface operstate, carrier", "ACTIVE, LinkUp, carrier",
     "The port has no usable link: nothing that the port sends arrives anywhere.",
     "Look at the cable and the transceivers at both ends, and at whether the switch port is shut "
     "down; on InfiniBand also at the subnet manager. `mlxlink -d DEVICE` says why a link is down.",
     link_state},
    {"link-rate", CheckKind::kPassive, Severity::kFatal, "link is trained at its full rate",
     "sysfs infiniband rate; interface speed", "the declared rate, else the maximum of the port",
     "The link came up slower, or with fewer lanes, than the policy or the port itself allows, so "
     "every job that crosses the link is slowed.",
     "Reseat the cable, compare the speed that is set at the switch port, and replace the cable or "
     "the transceiver if the link trains low again.",
     link_rate},
    {"link-flaps", CheckKind::kPassive, Severity::kFail, "link stays up",
     "carrier_down_count, carrier_changes, link_down_events_phy, link_downed", "0 in the run",
     "The link went down and came back while the run went on; a job stalls for seconds each time, "
     "or dies.",
     "Replace the cable or the optic at this port first. If the flaps follow the port and not the "
     "cable, look at the switch port.",
     link_flaps},
};

}  // namespace

std::span<const Check> link_checks() { return kLinkRows; }

}  // namespace weft::fabric
