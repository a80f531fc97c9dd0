// Addresses and packet sizes of ports: subnets, MTU, GIDs, addresses, slots.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <map>
#include <set>

#include "perf/validate/checks/counters.h"

namespace weft::fabric {
namespace {

bool has_full_membership(const PortFacts& port) {
  return port.pkeys.empty() || std::ranges::any_of(port.pkeys, [](const std::string& key) {
           return std::strtoul(key.c_str(), nullptr, 16) >= 0x8000;
         });
}

Outcome judge_subnet(const Check& check, const Observed& observed, const HostFacts& host,
                     const PortFacts& port, std::map<std::pair<int, int>, int>& lids) {
  if (!is_infiniband(port) || port.state == "DOWN") return std::nullopt;
  const Where where = at_port(host, port);
  if (!port.lid || !port.sm_lid) return std::vector{make_unknown(check, where)};
  if (*port.sm_lid == 0) return std::vector{text_finding(check, where, "sm_lid 0", "sm_lid > 0")};
  constexpr int kMostLid = 0xbfff;  // the highest unicast LID
  if (*port.lid == 0 || *port.lid > kMostLid)
    return std::vector{text_finding(check, where, fmt::format("lid {}", *port.lid), "1 to 49151")};
  if (lids[{port.rail, *port.lid}] > 1)
    return std::vector{
        text_finding(check, where, fmt::format("lid {}", *port.lid), "a lid of its own")};
  if (!has_full_membership(port))
    return std::vector{text_finding(check, where, port.pkeys.front(), "0x8000 or more")};
  static constexpr std::array<std::string_view, 1> kDropped = {"ib.VL15_dropped"};
  Outcome outcome = judge_counters(check, observed, host, port, {.names = kDropped});
  if (!outcome) return std::vector<Finding>{};
  for (Finding& finding : *outcome) finding.severity = Severity::kWarn;
  return outcome;
}

Judged ib_subnet(const Check& check, const Observed& observed) {
  std::map<std::pair<int, int>, int> lids;  // ports by rail and LID: rails may be separate subnets
  for (const HostFacts& host : observed.facts.hosts)
    for (const PortFacts& port : host.ports)
      if (is_infiniband(port) && port.lid) ++lids[{port.rail, *port.lid}];
  return each_port(observed, [&](const HostFacts& host, const PortFacts& port) {
    return judge_subnet(check, observed, host, port, lids);
  });
}

// Adds findings for ports whose number differs from the others of their rail.
void add_unlike(const Check& check, const SettingsOfRails& rails,
                const std::optional<std::string>& declared, std::string_view name, Unit unit,
                Judged& all) {
  for (Finding& finding : unlike_on_rails(check, rails, declared, name)) {
    if (!finding.text.empty()) {
      set_number(finding, unit, std::atof(finding.text.c_str()),
                 std::atof(finding.expected_text.c_str()));
      finding.text.clear();
      finding.expected_text.clear();
    }
    all.findings.push_back(std::move(finding));
  }
}

Judged mtu(const Check& check, const Observed& observed) {
  SettingsOfRails interfaces, ports;
  static constexpr std::array<std::string_view, 1> kOversize = {"eth.rx_oversize_pkts_phy"};
  Judged all = each_port(observed, [&](const HostFacts& host, const PortFacts& port) -> Outcome {
    const Where where = at_port(host, port);
    // The MTU of an IPoIB interface differs from the InfiniBand port's MTU.
    const bool has_mtu = port.mtu && !is_infiniband(port);
    if (has_mtu) interfaces[port.rail].push_back({where, fmt::format("{}", *port.mtu)});
    if (port.active_mtu) ports[port.rail].push_back({where, fmt::format("{}", *port.active_mtu)});
    if (!has_mtu && !port.active_mtu) {
      if (!port.rdma && port.netdev.empty()) return std::nullopt;
      return std::vector{make_unknown(check, where)};
    }
    const Outcome oversize = judge_counters(check, observed, host, port,
                                            {.names = kOversize, .direction = Direction::kReceive});
    return oversize.value_or(std::vector<Finding>{});
  });
  const auto in_text = [](std::optional<int> bytes) {
    return bytes ? std::optional(fmt::format("{}", *bytes)) : std::nullopt;
  };
  add_unlike(check, interfaces, in_text(observed.policy.mtu), "mtu", Unit::kBytes, all);
  // An interface's wrong MTU explains its port's active MTU: no second finding.
  std::set<std::pair<std::string, int>> named;
  for (const Finding& finding : all.findings)
    if (!finding.unknown) named.emplace(finding.where.host, finding.where.rail);
  Judged active;
  add_unlike(check, ports, in_text(observed.policy.rdma_mtu), "active_mtu", Unit::kBytes, active);
  for (Finding& finding : active.findings)
    if (!named.contains({finding.where.host, finding.where.rail}))
      all.findings.push_back(std::move(finding));
  return all;
}

// Returns "0000:0000:0000:0000:0000:ffff:0a00:0001" for 10.0.0.1; empty: not an IPv4 address.
std::string mapped_gid(const std::string& address) {
  std::array<unsigned, 4> byte{};
  if (std::sscanf(address.c_str(), "%u.%u.%u.%u", &byte[0], &byte[1], &byte[2], &byte[3]) != 4)
    return "";
  return fmt::format("0000:0000:0000:0000:0000:ffff:{:02x}{:02x}:{:02x}{:02x}", byte[0], byte[1],
                     byte[2], byte[3]);
}

// Returns the RoCE v2 GID of the port's address, or else the first not link-local GID, or else the
// first.
const PortFacts::Gid* routable_gid(const PortFacts& port) {
  const std::string wanted = mapped_gid(port.address.value_or(""));
  const PortFacts::Gid* best = nullptr;
  for (const PortFacts::Gid& gid : port.gids) {
    if (gid.type.find("v2") == std::string::npos) continue;
    if (gid.gid == wanted) return &gid;
    if (!best || (best->gid.starts_with("fe80") && !gid.gid.starts_with("fe80"))) best = &gid;
  }
  return best;
}

Judged gid(const Check& check, const Observed& observed) {
  SettingsOfRails indices;
  Judged all = each_port(observed, [&](const HostFacts& host, const PortFacts& port) -> Outcome {
    if (!port.rdma || is_infiniband(port)) return std::nullopt;
    const Where where = at_port(host, port);
    if (port.gids.empty()) {
      if (is_soft(port)) return std::nullopt;
      return std::vector{make_unknown(check, where)};
    }
    const PortFacts::Gid* chosen = routable_gid(port);
    if (!chosen) return std::vector{text_finding(check, where, port.gids.front().type, "RoCE v2")};
    const std::string wanted = mapped_gid(port.address.value_or(""));
    if (!wanted.empty() && chosen->gid != wanted && !is_soft(port))
      return std::vector{text_finding(check, where, chosen->gid, wanted)};
    indices[port.rail].push_back({where, fmt::format("{}", chosen->index)});
    return std::vector<Finding>{};
  });
  Judged other;
  add_unlike(check, indices, std::nullopt, "gid_index", Unit::kCount, other);
  // Breaks only programs configured with an index; others find the GID by its address.
  for (Finding& finding : other.findings) {
    finding.severity = Severity::kWarn;
    all.findings.push_back(std::move(finding));
  }
  return all;
}

// Ethernet interfaces need an address; InfiniBand ports do not.
Judged no_address(const Check& check, const Observed& observed) {
  std::map<int, std::size_t> with, all_ports;
  for (const HostFacts& host : observed.facts.hosts)
    for (const PortFacts& port : host.ports) {
      with[port.rail] += port.address ? 1 : 0;
      ++all_ports[port.rail];
    }
  return each_port(observed, [&](const HostFacts& host, const PortFacts& port) -> Outcome {
    if (is_infiniband(port) || with[port.rail] == 0 || 2 * with[port.rail] < all_ports[port.rail])
      return std::nullopt;
    if (port.address) return std::vector<Finding>{};
    return std::vector{text_finding(check, at_port(host, port), "no IP address",
                                    "an address, as the other hosts have")};
  });
}

// A port that reports an address (an IP, MAC or GID).
struct Owner {
  const HostFacts* host;
  const PortFacts* port;
};

// Returns whether two ranks that emulate two hosts, or two rails of a host, use the same interface.
bool is_same_interface(const Owner& a, const Owner& b) {
  const std::string& left = a.port->netdev.empty() ? a.port->device : a.port->netdev;
  const std::string& right = b.port->netdev.empty() ? b.port->device : b.port->netdev;
  const bool alike = left == right && a.port->mac == b.port->mac;
  return alike && (a.host == b.host ||
                   (a.host->emulated && b.host->emulated && a.port->address == b.port->address));
}

Judged duplicate_address(const Check& check, const Observed& observed) {
  std::map<std::string, std::vector<Owner>> owners;
  Judged all = each_port(observed, [&](const HostFacts& host, const PortFacts& port) -> Outcome {
    std::set<std::string> names;
    if (port.address && !port.address->empty() && !port.address->starts_with("127."))
      names.insert("ip " + *port.address);
    if (port.mac && port.mac->find_first_not_of("0:") != std::string::npos)
      names.insert("mac " + *port.mac);
    for (const PortFacts::Gid& gid : port.gids)
      if (gid.gid.find_first_not_of("0:") != std::string::npos) names.insert("gid " + gid.gid);
    if (names.empty()) return std::nullopt;
    for (const std::string& name : names) owners[name].push_back({&host, &port});
    return std::vector<Finding>{};
  });
  std::map<std::pair<std::string, int>, Finding> by_port;  // one per port: IP before MAC before GID
  for (const char* kind : {"ip ", "mac ", "gid "})
    for (const auto& [name, ports] : owners) {
      if (ports.size() < 2 || !name.starts_with(kind)) continue;
      for (const Owner& one : ports) {
        const auto other = std::ranges::find_if(ports, [&](const Owner& them) {
          return them.port != one.port && !is_same_interface(one, them);
        });
        if (other == ports.end()) continue;
        const Where where = at_port(*one.host, *one.port);
        const auto key = std::pair(one.host->host, one.port->rail);
        Finding& finding =
            by_port.try_emplace(key, text_finding(check, where, name, "unique")).first->second;
        const Where theirs = at_port(*other->host, *other->port);
        finding.evidence.push_back(
            text_evidence(name, theirs, other->port->mac.value_or(other->port->device)));
      }
    }
  for (auto& [key, finding] : by_port) all.findings.push_back(std::move(finding));
  return all;
}

Judged rail_map(const Check& check, const Observed& observed) {
  SettingsOfRails rails;
  Judged all = each_port(observed, [&](const HostFacts& host, const PortFacts& port) -> Outcome {
    if (!port.pci || host.emulated) return std::nullopt;
    rails[port.rail].push_back({at_port(host, port), *port.pci});
    return std::vector<Finding>{};
  });
  all.findings = unlike_on_rails(check, rails, std::nullopt, "pci");
  return all;
}

Judged rails_differ(const Check& check, const Observed& observed) {
  std::vector<Setting> counts;
  for (const HostFacts& host : observed.facts.hosts)
    counts.push_back({at_host(host.host), std::to_string(host.ports.size())});
  const int hosts = static_cast<int>(counts.size());
  Judged all{unlike(check, counts, std::nullopt, {}, "rails"), hosts, hosts};
  // A host's declared rails are intended; discovery omits a rail that is down.
  for (Finding& finding : all.findings)
    if (std::ranges::all_of(observed.facts.hosts, [&](const HostFacts& host) {
          return host.names_rails ||
                 (!finding.where.host.empty() && host.host != finding.where.host);
        }))
      finding.severity = Severity::kInfo;
  return all;
}

// Rails of one subnet that answer ARP for each other's addresses: packets to one rail arrive at
// another.
Judged rails_one_subnet(const Check& check, const Observed& observed) {
  std::set<std::string> strayed;  // hosts where packets arrived at another port
  for (const FlowSample& sample : observed.samples.flows)
    if (sample.arrived_at && *sample.arrived_at != sample.flow.to &&
        sample.arrived_at->host == sample.flow.to.host)
      strayed.insert(host_name(observed, sample.flow.to.host));
  Judged all = each_host(observed, [&](const HostFacts& host) -> Outcome {
    std::map<std::string, std::vector<const PortFacts*>> subnets;
    for (const PortFacts& port : host.ports)
      if (port.subnet && port.device != "lo" && port.arp_for_all.value_or(false))
        subnets[*port.subnet].push_back(&port);
    std::vector<Finding> findings;
    for (const auto& [subnet, ports] : subnets) {
      if (ports.size() < 2) continue;
      Finding& finding =
          findings.emplace_back(text_finding(check, at_host(host.host), subnet, "one a rail"));
      for (const PortFacts* port : ports)
        finding.evidence.push_back(text_evidence("subnet", at_port(host, *port), subnet));
      if (strayed.contains(host.host)) finding.severity = Severity::kFatal;
    }
    return findings;
  });
  // If all hosts are affected, the reason is the address plan, not a host.
  if (all.findings.size() > 1 && all.findings.size() == observed.facts.hosts.size()) {
    Finding whole = all.findings.front();
    for (const Finding& finding : all.findings)
      whole.severity = std::max(whole.severity, finding.severity);
    whole.where = {};
    all.findings = {whole};
  }
  return all;
}

constexpr Check kAddressingRows[] = {
    {"rails-differ", CheckKind::kPassive, Severity::kWarn,
     "all hosts have the same number of rails",
     "the rails of each host (WEFT_RAILS, or the devices that are up)", "equal",
     "A host has fewer or more rails than most, and a job can use only as many as the host with "
     "the fewest.",
     "Bring the missing rail up, or set the same WEFT_RAILS on all hosts. For hosts whose "
     "WEFT_RAILS names fewer rails, this is only information.",
     rails_differ},
    {"rails-one-subnet", CheckKind::kPassive, Severity::kWarn, "rails have subnets of their own",
     "addresses and net.ipv4.conf.*.arp_ignore of each rail", "one subnet a rail",
     "Rails of a host are in one subnet, and each answers ARP for the addresses of all: what is "
     "sent to one rail arrives at another. Where the run saw that, it is a fault, and the cables "
     "are not at fault.",
     "Give each rail a subnet of its own, or set net.ipv4.conf.all.arp_ignore=1 and "
     "arp_announce=2 (sysctl) on all hosts.",
     rails_one_subnet},
    {"ib-subnet", CheckKind::kPassive, Severity::kFatal, "port belongs to its subnet",
     "sysfs infiniband lid, sm_lid, pkeys, VL15_dropped", "nonzero, unique, full member",
     "The subnet manager has not set this port up, or has set it up like another port, so packets "
     "to this port are not routed.",
     "Look at the subnet manager (`sminfo`, `ibstat`, opensm's log) and at the partition in which "
     "the port should be.",
     ib_subnet},
    {"mtu", CheckKind::kPassive, Severity::kFatal, "MTU is equal on all hosts",
     "interface mtu, ibv active_mtu, rx_oversize_pkts_phy", "equal, as declared",
     "Ports that talk to each other allow packets of different sizes: small messages pass, and "
     "large ones hang.",
     "Set one MTU on all hosts of the rail (`ip link set DEV mtu N`) and at least that on every "
     "switch port between them.",
     mtu},
    {"gid", CheckKind::kPassive, Severity::kFatal, "RoCE v2 GIDs exist and agree",
     "sysfs infiniband gids, gid_attrs/types, gid_attrs/ndevs", "RoCE v2 of the address, one index",
     "The GID that RDMA connections use is missing, or has another index than at the other hosts, "
     "so both sides choose GIDs that cannot reach each other.",
     "Give the interface its IPv4 address and let the GID appear (`show_gids`); where programs use "
     "a fixed index (NCCL_IB_GID_INDEX), that index must be the same GID on all hosts.",
     gid},
    {"no-address", CheckKind::kPassive, Severity::kFatal, "every rail has its address",
     "interface addresses of each rail", "an address if most hosts have one",
     "The port is up but has no IP address, so no other host reaches it by this rail.",
     "Give the interface its address again (DHCP, netplan, NetworkManager), or leave it out with "
     "WEFT_RAILS on all hosts.",
     no_address},
    {"duplicate-address", CheckKind::kPassive, Severity::kFatal, "addresses are unique",
     "addresses, MACs and GIDs of all hosts, joined", "each one once",
     "Two ports report the same address. Packets go to either of them by chance, and connections "
     "break at random.",
     "Give one of the ports another address. Equal MACs point at cloned virtual machines or at a "
     "badly written manifest.",
     duplicate_address},
    {"rail-map", CheckKind::kPassive, Severity::kWarn, "rails are the same slots everywhere",
     "sysfs device/ (PCI address) of each rail", "the same PCI address on every host",
     "A rail of this host is another slot than on the other hosts: either the NICs are numbered "
     "differently, or hardware is missing or was moved.",
     "Compare `lspci` of the hosts. If a NIC is missing, reseat or replace that NIC; else fix the "
     "order of the rails (WEFT_RAILS, or udev names).",
     rail_map},
};

}  // namespace

std::span<const Check> addressing_checks() { return kAddressingRows; }

}  // namespace weft::fabric
