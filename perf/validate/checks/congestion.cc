// Congestion control of RoCE: whether switches mark, receivers notify and senders slow down, and
// whether DCQCN is configured alike. Uses counters of both ends under the run's incast.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <map>
#include <set>

#include "perf/validate/checks/counters.h"

namespace weft::fabric {
namespace {

// Names in mlx5, irdma, ionic and hns.
constexpr std::string_view kMarked[] = {"hw.np_ecn_marked_roce_packets", "hw.RxECNMrkd",
                                        "hw.rx_rdma_ecn_pkts"};
constexpr std::string_view kSent[] = {"hw.np_cnp_sent", "hw.cnpSent", "hw.tx_rdma_cnp_pkts",
                                      "hw.tx_cnp_pkt"};
constexpr std::string_view kHandled[] = {"hw.rp_cnp_handled", "hw.cnpHandled",
                                         "hw.rx_rdma_cnp_pkts", "hw.rx_cnp_pkt"};
constexpr std::string_view kIgnored[] = {"hw.rp_cnp_ignored", "hw.cnpIgnored"};

// The policy decides; by default, a port without ECN on any priority needs no DCQCN.
bool expects_dcqcn(const Observed& observed, const PortFacts& port) {
  if (!is_roce(port)) return false;
  if (observed.policy.dcqcn) return *observed.policy.dcqcn;
  if (port.ecn_np_priorities || port.ecn_rp_priorities)
    return port.ecn_np_priorities.value_or(0) != 0 || port.ecn_rp_priorities.value_or(0) != 0;
  return is_mlx5(port);  // enabled by default
}

// The ports of RDMA incasts with at least two senders.
struct Incasts {
  std::set<std::pair<std::string, int>> targets, senders;  // host and rail
};

Incasts incasts_of(const Observed& observed) {
  std::map<std::pair<int, Port>, std::vector<Port>> senders;  // senders, by round and target
  for (const FlowSample& sample : observed.samples.flows) {
    if (observed.samples.probe_of(sample) != Probe::kIncast) continue;
    if (sample.reached && !over_tcp(sample))
      senders[{sample.round, sample.flow.to}].push_back(sample.flow.from);
  }
  Incasts incasts;
  for (const auto& [where, from] : senders) {
    if (from.size() < 2) continue;
    incasts.targets.emplace(host_name(observed, where.second.host), where.second.rail);
    for (const Port port : from) incasts.senders.emplace(host_name(observed, port.host), port.rail);
  }
  return incasts;
}

bool takes_part(const std::set<std::pair<std::string, int>>& ports, const HostFacts& host,
                const PortFacts& port) {
  return ports.contains({host.host, port.rail});
}

Judged ecn_marking(const Check& check, const Observed& observed) {
  const Incasts incasts = incasts_of(observed);
  std::map<int, std::pair<int, int>> rails;  // number of targets, and of those without a mark
  Judged all = each_port(observed, [&](const HostFacts& host, const PortFacts& port) -> Outcome {
    if (!expects_dcqcn(observed, port) || !takes_part(incasts.targets, host, port))
      return std::nullopt;
    const Moves moves = moves_of(host, port, kMarked);
    const Where where = at_port(host, port, Direction::kReceive);
    ++rails[port.rail].first;
    if (moves.events > 0) return std::vector<Finding>{};
    if (auto unknown = doubt(check, where, moves, is_mlx5(port))) return std::vector{*unknown};
    if (moves.present == 0) return std::nullopt;
    ++rails[port.rail].second;
    Finding finding = make_finding(check, where);
    set_number(finding, Unit::kCount, 0, 1);
    add_number(finding, std::string(kMarked[0]), 0, Unit::kCount, 1);
    return std::vector{finding};
  });
  // If no port of a rail received a mark, the rail's switches do not mark.
  for (const auto& [rail, numbers] : rails) {
    const auto [targets, without] = numbers;
    if (targets < 2 || without < targets) continue;
    Finding whole = make_finding(check, at_rail(rail));
    set_number(whole, Unit::kCount, 0, 1);
    std::erase_if(all.findings, [&, r = rail](const Finding& finding) {
      const bool merged = !finding.unknown && finding.where.rail == r;
      if (merged && whole.evidence.size() < 8) whole.evidence.push_back(finding.evidence.front());
      return merged;
    });
    all.findings.push_back(whole);
  }
  return all;
}

Judged cnp_sent(const Check& check, const Observed& observed) {
  return each_port(observed, [&](const HostFacts& host, const PortFacts& port) -> Outcome {
    if (!expects_dcqcn(observed, port)) return std::nullopt;
    const Moves marked = moves_of(host, port, kMarked), sent = moves_of(host, port, kSent);
    const Where where = at_port(host, port, Direction::kReceive);
    if (marked.events <= 0 || sent.events > 0) return std::vector<Finding>{};
    if (auto unknown = doubt(check, where, sent, is_mlx5(port))) return std::vector{*unknown};
    Finding finding = make_finding(check, where);
    set_number(finding, Unit::kCount, 0, 1);
    finding.evidence = marked.moved;
    return std::vector{finding};
  });
}

constexpr double kLeastCnps = 100;        // fewer are too few to compare sums
constexpr double kMostDifference = 0.10;  // between notifications sent and handled on a rail

// Totals over the ports of a rail.
struct Sums {
  double sent = 0, handled = 0;
  bool known = true;
  bool blamed = false;  // a port of the rail handled none
};

Judged cnp_handled(const Check& check, const Observed& observed) {
  const Incasts incasts = incasts_of(observed);
  std::map<int, Sums> rails;
  for (const HostFacts& host : observed.facts.hosts)
    for (const PortFacts& port : host.ports) {
      if (!expects_dcqcn(observed, port) || excluded(observed, port)) continue;
      const auto sent = change_of(port, kSent[0]), handled = change_of(port, kHandled[0]);
      Sums& sums = rails[port.rail];
      sums.sent += sent.value_or(0);
      sums.handled += handled.value_or(0);
      sums.known = sums.known && sent && handled;
    }
  Judged all = each_port(observed, [&](const HostFacts& host, const PortFacts& port) -> Outcome {
    if (!expects_dcqcn(observed, port) || !takes_part(incasts.senders, host, port))
      return std::nullopt;
    Sums& sums = rails[port.rail];
    const Moves moves = moves_of(host, port, kHandled);
    const Where where = at_port(host, port, Direction::kTransmit);
    if (moves.events > 0 || sums.sent < kLeastCnps) return std::vector<Finding>{};
    if (auto unknown = doubt(check, where, moves, is_mlx5(port))) return std::vector{*unknown};
    sums.blamed = true;
    Finding finding = make_finding(check, where);
    set_number(finding, Unit::kCount, 0, 1);
    add_number(finding, "rail.cnp_sent", sums.sent, Unit::kCount, 0);
    return std::vector{finding};
  });
  for (const auto& [rail, sums] : rails) {
    if (!sums.known || sums.blamed || sums.sent < kLeastCnps) continue;
    if (std::abs(sums.handled - sums.sent) <= kMostDifference * sums.sent) continue;
    Finding& finding = all.findings.emplace_back(make_finding(check, at_rail(rail)));
    set_number(finding, Unit::kShare, sums.handled / sums.sent, 1);
    add_number(finding, std::string(kSent[0]), sums.sent, Unit::kCount, 0);
    add_number(finding, std::string(kHandled[0]), sums.handled, Unit::kCount, sums.sent);
  }
  return all;
}

Judged cnp_ignored(const Check& check, const Observed& observed) {
  return each_port(observed, [&](const HostFacts& host, const PortFacts& port) -> Outcome {
    if (!expects_dcqcn(observed, port)) return std::nullopt;
    return judge_counters(
        check, observed, host, port,
        {.names = kIgnored, .direction = Direction::kTransmit, .required = is_mlx5});
  });
}

// Returns parameters of congestion control by name, with the priorities that have ECN enabled.
std::map<std::string, std::string> parameters_of(const PortFacts& port) {
  std::map<std::string, std::string> parameters(port.cc_parameters.begin(),
                                                port.cc_parameters.end());
  if (port.ecn_np_priorities)
    parameters["ecn_np_priorities"] = fmt::format("0x{:02x}", *port.ecn_np_priorities);
  if (port.ecn_rp_priorities)
    parameters["ecn_rp_priorities"] = fmt::format("0x{:02x}", *port.ecn_rp_priorities);
  return parameters;
}

// Compares with the policy's dcqcn and, if known, the priority that must have ECN.
bool ecn_breaks_policy(const Observed& observed, const PortFacts& port) {
  const Policy& policy = observed.policy;
  if (!policy.dcqcn) return false;
  for (const auto& bits : {port.ecn_np_priorities, port.ecn_rp_priorities}) {
    if (!bits) continue;
    if (!*policy.dcqcn && *bits != 0) return true;
    if (!*policy.dcqcn) continue;
    const int priority = policy.pfc_priority.value_or(-1);
    if (*bits == 0 || (priority >= 0 && (*bits >> priority & 1) == 0)) return true;
  }
  return false;
}

Judged dcqcn_config(const Check& check, const Observed& observed) {
  std::map<std::string, std::vector<Setting>> groups;
  Judged all = each_port(observed, [&](const HostFacts& host, const PortFacts& port) -> Outcome {
    if (!is_roce(port)) return std::nullopt;
    const Where where = at_port(host, port);
    const auto parameters = parameters_of(port);
    if (parameters.empty()) {
      const bool asked = observed.policy.dcqcn || !observed.policy.cc_parameters.empty();
      if (!asked) return std::nullopt;
      return std::vector{make_unknown(check, where)};
    }
    for (const auto& [name, value] : parameters) groups[name].push_back({where, value});
    if (!ecn_breaks_policy(observed, port)) return std::vector<Finding>{};
    const auto bits = parameters.find("ecn_np_priorities");
    return std::vector{text_finding(check, where, bits == parameters.end() ? "" : bits->second,
                                    *observed.policy.dcqcn ? "on" : "off")};
  });
  // One finding per port, however many parameters differ.
  std::map<std::pair<std::string, int>, Finding> by_port;
  for (const Finding& finding : all.findings)
    by_port.try_emplace({finding.where.host, finding.where.rail}, finding);
  for (const auto& [name, group] : groups) {
    const auto& declared = observed.policy.cc_parameters;
    const auto it = declared.find(name);
    const auto expected = it == declared.end() ? std::nullopt : std::optional(it->second);
    for (Finding& finding : unlike(check, group, expected, {}, name)) {
      const auto key = std::pair(finding.where.host, finding.where.rail);
      const auto [there, fresh] = by_port.try_emplace(key, finding);
      if (!fresh)
        there->second.evidence.insert(there->second.evidence.end(), finding.evidence.begin(),
                                      finding.evidence.end());
    }
  }
  all.findings.clear();
  for (auto& [key, finding] : by_port) all.findings.push_back(std::move(finding));
  return all;
}

constexpr Check kCongestionRows[] = {
    {"ecn-marking", CheckKind::kPassive, Severity::kFail, "switches mark under congestion",
     "hw_counters/np_ecn_marked_roce_packets", "> 0 under the forced incast",
     "Many hosts sent to one port and no packet arrived with a congestion mark: in the switch "
     "queue before that port, ECN is off or its threshold is too high.",
     "Enable ECN (WRED) for the RDMA class on that switch, with a threshold below the one of PFC.",
     ecn_marking},
    {"cnp-sent", CheckKind::kPassive, Severity::kFail, "receivers notify",
     "hw_counters/np_cnp_sent", "> 0 where marked packets arrive",
     "Marked packets arrived and the port sent no congestion notification: the notification "
     "point of DCQCN is off at this NIC.",
     "Enable the notification point for the RDMA priority: "
     "`echo 1 > /sys/class/net/DEV/ecn/roce_np/enable/P`.",
     cnp_sent},
    {"cnp-handled", CheckKind::kPassive, Severity::kFail, "senders slow down when notified",
     "hw_counters/rp_cnp_handled against np_cnp_sent", "about the sum of np_cnp_sent",
     "Notifications were sent and not handled: they are lost on the way, travel in a starved "
     "class, or the reaction point is off at the sender.",
     "Check the reaction point (`ecn/roce_rp/enable/P`) at the sender, and that the class of CNPs "
     "(DSCP 48 by default) has strict priority in all switches.",
     cnp_handled},
    {"cnp-ignored", CheckKind::kPassive, Severity::kFail, "no notification is ignored",
     "hw_counters/rp_cnp_ignored", "0 in the run",
     "The port got congestion notifications and ignored them: it keeps sending at full rate into "
     "a full queue.",
     "Enable the reaction point on the priority that the traffic has, and compare that priority "
     "with the class of the notifications.",
     cnp_ignored},
    {"dcqcn-config", CheckKind::kPassive, Severity::kFail, "DCQCN is configured consistently",
     "debugfs cc_params; ecn/roce_np, roce_rp enable", "as declared, else as most ports",
     "Parameters of congestion control differ between ports. Ports that yield more than the "
     "others starve when they share a queue.",
     "Set all NICs by one script, or declare the wanted values under cc_parameters of the policy.",
     dcqcn_config},
};

}  // namespace

std::span<const Check> congestion_checks() { return kCongestionRows; }

}  // namespace weft::fabric
