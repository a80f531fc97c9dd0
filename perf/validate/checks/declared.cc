// What the policy declares and nothing on these hosts says: without this check, nobody would have looked
// and the run would be OK.
#include <fmt/format.h>

#include <algorithm>

#include "perf/validate/checks/check.h"

namespace weft::fabric {
namespace {

struct DeclaredKey {
  std::string_view name;
  bool (*is_declared)(const Policy& policy);
  bool (*is_read)(const Policy& policy, const PortFacts& port);  // what the check of the key needs
};

bool has_parameters(const Policy& policy, const PortFacts& port) {
  return std::ranges::all_of(policy.cc_parameters, [&](const auto& one) {
    return std::ranges::find(port.cc_parameters, one.first,
                             &std::pair<std::string, std::string>::first) !=
           port.cc_parameters.end();
  });
}

constexpr DeclaredKey kDeclaredKeys[] = {
    {"mtu", [](const Policy& p) { return p.mtu.has_value(); },
     [](const Policy&, const PortFacts& port) { return port.mtu && !is_infiniband(port); }},
    {"rdma_mtu", [](const Policy& p) { return p.rdma_mtu.has_value(); },
     [](const Policy&, const PortFacts& port) { return port.active_mtu.has_value(); }},
    {"pfc_priority", [](const Policy& p) { return p.pfc_priority.has_value(); },
     [](const Policy&, const PortFacts& port) { return port.pfc_priorities.has_value(); }},
    {"trust", [](const Policy& p) { return p.trust.has_value(); },
     [](const Policy&, const PortFacts& port) { return port.qos_trust.has_value(); }},
    {"dscp", [](const Policy& p) { return p.dscp.has_value(); },
     [](const Policy&, const PortFacts& port) { return !port.dscp_map.empty(); }},
    {"dcqcn", [](const Policy& p) { return p.dcqcn.has_value(); },
     [](const Policy&, const PortFacts& port) {
       return port.ecn_np_priorities || port.ecn_rp_priorities;
     }},
    {"cc_parameters", [](const Policy& p) { return !p.cc_parameters.empty(); }, has_parameters},
    {"firmware", [](const Policy& p) { return !p.firmware.empty(); },
     [](const Policy& p, const PortFacts& port) {
       return port.firmware && port.board && p.firmware.contains(*port.board);
     }},
};

Judged declared(const Check& check, const Observed& observed) {
  Judged all;
  std::string unread;
  for (const DeclaredKey& key : kDeclaredKeys) {
    if (!key.is_declared(observed.policy)) continue;
    int ports = 0, read = 0;
    for (const HostFacts& host : observed.facts.hosts)
      for (const PortFacts& port : host.ports) {
        if (excluded(observed, port)) continue;
        ++ports;
        read += key.is_read(observed.policy, port);
      }
    ++all.total;
    if (read == ports && ports > 0)
      ++all.judged;
    else
      unread += fmt::format("{}{} (read at {} of {} ports)", unread.empty() ? "" : ", ", key.name,
                            read, ports);
  }
  if (unread.empty()) return all;
  Finding& finding = all.findings.emplace_back(make_unknown(check, {}));
  finding.unit = Unit::kText;
  finding.text = unread;
  return all;
}

constexpr Check kDeclaredRows[] = {
    {"declared", CheckKind::kPassive, Severity::kFail, "what the policy declares can be read",
     "keys of the policy against what all ports say of themselves", "each key at all ports",
     "The policy declares a setting that some ports do not show, so nobody has compared it there: "
     "the port has no such setting, or weft may not read it.",
     "Let weft read what is declared (run as root, with /sys and debugfs of the host; PFC and DSCP "
     "are of RoCE ports), or take the key out of the policy.",
     declared},
};

}  // namespace

std::span<const Check> declared_checks() { return kDeclaredRows; }

}  // namespace weft::fabric
