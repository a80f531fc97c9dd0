// Selects the job's ports, which are of one kind. A kind is the port's hardware (link layer, card,
// lanes), so a port that is down, slow, or in a narrow slot has the same kind as its siblings.
#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <map>
#include <set>
#include <tuple>

#include "topo/discover.h"
#include "topo/near.h"
#include "topo/sysfs.h"

namespace weft {

namespace {

using Ports = std::vector<Nic*>;

bool loopback(const Nic& nic) { return nic.name == "lo"; }

// The BMC's link to its own host (usb0, idrac, bmc_redfish0) and a container engine's resolver are
// up, and often have the same address on every host.
bool link_local(const Nic& nic) { return nic.address.starts_with("169.254."); }

bool cabled(const Nic& nic) { return nic.link || nic.up; }

template <typename Is>
bool any(const Ports& ports, Is is) {
  return std::ranges::any_of(ports, [&](const Nic* nic) { return is(*nic); });
}

// Excludes the ports for which `wanted` is false, unless that excludes all ports.
template <typename Wanted>
void keep(Ports& ports, const char* why, Wanted wanted) {
  if (!any(ports, wanted)) return;
  for (Nic* nic : ports)
    if (!wanted(*nic)) nic->aside = why;
  std::erase_if(ports, [&](const Nic* nic) { return !wanted(*nic); });
}

// Returns "0000:3b:00" for "0000:3b:00.1".
std::string slot(const Nic& nic) { return nic.pci.substr(0, nic.pci.find('.')); }

std::map<std::string, Ports> by_kind(const Ports& ports) {
  std::map<std::string, int> functions;
  for (const Nic* nic : ports) ++functions[slot(*nic)];
  std::map<std::string, Ports> kinds;
  for (Nic* nic : ports) {
    const int n = nic->pci.empty() ? 1 : functions[slot(*nic)];
    kinds[n == 1 ? nic->kind : fmt::format("{}, {} ports a card", nic->kind, n)].push_back(nic);
  }
  return kinds;
}

// Returns the distance of the nearest port from a GPU: within its root complex, within its NUMA
// node, or farther.
int distance(const Ports& ports, const Gpu& gpu, const std::string& sysfs) {
  int nearest = std::numeric_limits<int>::max();
  for (const Nic* nic : ports)
    if (const int far = pci_distance(nic->pci, gpu.pci, sysfs);
        far != std::numeric_limits<int>::max())
      nearest = std::min(nearest, far / 100);
  return nearest;
}

// Selects a kind by these criteria, in order: nearest to most GPUs; a port for most GPUs; cabled;
// InfiniBand before Ethernet; PCIe bandwidth; number of ports.
std::string chosen_kind(const HostDescription& host, const std::map<std::string, Ports>& kinds) {
  std::map<std::string, std::size_t> beside;
  for (const Gpu& gpu : host.gpus) {
    std::map<std::string, int> far;
    int nearest = std::numeric_limits<int>::max();
    for (const auto& [kind, ports] : kinds)
      nearest = std::min(nearest, far[kind] = distance(ports, gpu, host.sysfs));
    for (const auto& [kind, one] : far) beside[kind] += one == nearest ? 1 : 0;
  }
  const auto worth = [&](const auto& entry) {
    const Ports& ports = entry.second;
    return std::tuple(beside[entry.first], std::min(ports.size(), host.gpus.size()),
                      any(ports, cabled), entry.first.starts_with("InfiniBand"),
                      ports.front()->pcie_gbps, ports.size());
  };
  return std::ranges::max_element(kinds, {}, worth)->first;
}

// Excludes the ports of other kinds, and the second port of cards if none is cabled.
void keep_one_kind(const HostDescription& host, Ports& ports) {
  if (ports.empty()) return;
  const auto kinds = by_kind(ports);
  const std::string kind = chosen_kind(host, kinds);
  for (const auto& [other, all] : kinds)
    for (Nic* nic : all)
      if (other != kind)
        nic->aside = fmt::format("another kind ({}) than the rails ({})", other, kind);
  ports = kinds.at(kind);
  std::map<char, Ports> functions;
  for (Nic* nic : ports)
    if (!nic->pci.empty()) functions[nic->pci.back()].push_back(nic);
  const bool used = any(ports, [](const Nic& nic) { return nic.up; });
  for (const auto& [function, alike] : functions)
    if (used && kind.ends_with("ports a card") && !any(alike, cabled))
      for (Nic* nic : alike) nic->aside = "this port of the card has no cable, on any such card";
  std::erase_if(ports, [](const Nic* nic) { return !nic->aside.empty(); });
}

// Ports without an address are one rail if the address of lo (or of a dummy device) is routed over
// all of them.
void share_address(const HostDescription& host, Ports& ports) {
  const auto owner = std::ranges::find_if(host.nics, [](const Nic& nic) {
    return !nic.rdma && nic.cable.empty() && nic.up && !nic.address.empty() &&
           !nic.address.starts_with("127.") && nic.address != "::1" &&
           (loopback(nic) || nic.aside.find("dummy") != std::string::npos);
  });
  if (owner == host.nics.end() || any(ports, [](const Nic& nic) { return !nic.address.empty(); }))
    return;
  for (Nic* nic : ports) {
    nic->address = owner->address;
    nic->ipv6 = owner->ipv6;
    if (nic->rdma || ports.size() == 1) continue;
    nic->netdev = "lo";
    if (nic != ports.front())
      nic->aside = fmt::format("routing shares the address {} out over {} and this", owner->address,
                               ports.front()->name);
  }
  std::erase_if(ports, [](const Nic* nic) { return !nic->aside.empty(); });
}

Ports rdma_ports(const HostDescription& host, std::vector<Nic>& nics) {
  Ports ports;
  for (Nic& nic : nics) {
    if (nic.rdma && nic.aside.empty() && nic.closed && nic.address.empty())
      nic.aside = "this process cannot open it";
    if (nic.rdma && nic.aside.empty()) ports.push_back(&nic);
  }
  keep(ports, "made of software, beside hardware", [](const Nic& nic) { return !nic.pci.empty(); });
  keep_one_kind(host, ports);
  share_address(host, ports);
  return ports;
}

Ports interfaces(const HostDescription& host, std::vector<Nic>& nics) {
  Ports ports, down;
  for (Nic& nic : nics)
    if (!nic.rdma && nic.aside.empty() && !loopback(nic)) (nic.up ? ports : down).push_back(&nic);
  keep(ports, "a link-local address leads to no other host",
       [](const Nic& nic) { return !link_local(nic); });
  const auto near = [&](int removed) {
    return [removed](const Nic& nic) { return nic.removed <= removed && !nic.address.empty(); };
  };
  for (const int removed : {0, 1, 2})
    if (any(ports, near(removed))) {
      keep(ports, removed == 0 ? "virtual, beside NICs" : "a bridge of virtual cables",
           [&](const Nic& nic) { return nic.removed <= removed; });
      keep(ports, "no address", near(removed));
    }
  if (any(ports, [](const Nic& nic) { return nic.removed == 0; }))
    keep(ports, "virtual, beside NICs", [](const Nic& nic) { return nic.removed == 0; });
  // An interface that is down but has an address is configured for use.
  for (Nic* nic : down) {
    if (nic->address.empty() || link_local(*nic) || nic->removed > 0)
      nic->aside = "down, without an address";
    else
      ports.push_back(nic);
  }
  if (!any(ports, [](const Nic& nic) { return nic.up; })) {
    for (Nic* nic : ports) nic->aside = "down";
    return {};
  }
  keep_one_kind(host, ports);
  share_address(host, ports);
  return ports;
}

}  // namespace

PortChoice choose_ports(const HostDescription& host) {
  std::vector<Nic> nics = host.nics;
  Ports ports = rdma_ports(host, nics);
  if (any(ports, cabled)) {
    for (Nic& nic : nics)
      if (!nic.rdma && nic.aside.empty() && !loopback(nic))
        nic.aside = "an interface, beside RDMA devices";
  } else if (Ports plain = interfaces(host, nics); !plain.empty()) {
    for (Nic* nic : ports) nic->aside = "no cable, in any port of this kind: " + nic->kind;
    ports = std::move(plain);
  }
  if (ports.empty())  // nothing else is available
    for (Nic& nic : nics)
      if (!nic.rdma && nic.up && !loopback(nic)) ports.push_back(&nic);
  if (ports.empty())
    for (Nic& nic : nics)
      if (!nic.rdma && nic.up) ports.push_back(&nic);
  PortChoice choice;
  std::set<const Nic*> chosen(ports.begin(), ports.end());
  for (Nic& nic : nics) {
    const bool rail = chosen.contains(&nic);
    if (rail) nic.aside.clear();
    if (rail || !loopback(nic)) (rail ? choice.rails : choice.others).push_back(nic);
  }
  std::ranges::stable_sort(choice.rails, sysfs::before);
  return choice;
}

}  // namespace weft
