// Determines the cable that an interface's packets use, and the interfaces that lead to no other
// host. Uses the kernel's information on an interface, never its name.
#include <fmt/format.h>
#include <net/if.h>

#include <algorithm>
#include <filesystem>
#include <map>
#include <tuple>

#include "topo/sysfs.h"

namespace weft::sysfs {

namespace {

// "pf0vf3", "c1pf0sf88": the host's representor of a guest's virtual function.
bool is_representor(const std::string& port) {
  return port.find("pf") != std::string::npos &&
         (port.find("vf") != std::string::npos || port.find("sf") != std::string::npos);
}

class Cables {
 public:
  Cables(std::string root, std::map<std::string, Link> links, std::vector<Nic>& nics)
      : root_(std::move(root)), links_(std::move(links)), nics_(nics) {}

  void find() {
    for (Nic& nic : nics_)
      if (!nic.rdma) describe(nic);
    for (Nic& nic : nics_)
      if (nic.rdma) describe_device(nic);
    one_rail_per_cable(false);
    one_rail_per_cable(true);
  }

 private:
  const Link* link_of(const std::string& name) const {
    const auto it = links_.find(name);
    return it == links_.end() ? nullptr : &it->second;
  }
  std::string name_of(int index) const {
    for (const auto& [name, link] : links_)
      if (index > 0 && link.index == index) return name;
    return "";
  }
  Nic* nic_of(const std::string& name) const {
    for (Nic& nic : nics_)
      if (!nic.rdma && nic.name == name) return &nic;
    return nullptr;
  }
  const std::string& kind_of_master(const Link& link) const {
    static const std::string none;
    const Link* master = link_of(name_of(link.master));
    return master ? master->kind : none;
  }

  // Returns the PCI function of the card's port, also for its virtual functions.
  std::string port_of_card(const Nic& nic) const {
    std::error_code error;
    const auto physical =
        std::filesystem::canonical(root_ + "/bus/pci/devices/" + nic.pci + "/physfn", error);
    const std::string pci = error ? nic.pci : physical.filename().string();
    return std::ranges::count(nics_, pci, &Nic::pci) > 0 ? pci : nic.pci;
  }

  // Returns the lowest interface below `name`: a NIC, a bond, or a virtual cable; empty if no
  // interface leads out of this host.
  std::string bottom_of(const std::string& name, int depth = 0) const {
    const Link* link = link_of(name);
    if (!link || depth > 8) return "";
    const std::string& kind = link->kind;
    if (kind == "vlan" || kind == "macvlan" || kind == "macvtap" || kind == "ipvlan" ||
        kind == "ipoib") {
      const std::string lower = link->far || link->lower == link->index ? "" : name_of(link->lower);
      return lower.empty() ? name : bottom_of(lower, depth + 1);
    }
    if (kind == "bridge" || kind == "openvswitch") {
      std::string virtual_one;
      for (const auto& [other, port] : links_) {
        const bool below = kind == "bridge"
                               ? port.master == link->index
                               : port.kind.empty() && port.mac == link->mac && port.master > 0 &&
                                     kind_of_master(port) == "openvswitch";
        const std::string bottom = below ? bottom_of(other, depth + 1) : "";
        if (bottom.empty()) continue;
        if (link_of(bottom)->kind != "veth") return bottom;
        virtual_one = bottom;
      }
      return virtual_one;
    }
    if (kind == "veth") return link->far || name_of(link->lower).empty() ? name : "";
    const bool cable = kind.empty() || kind == "bond" || kind == "team";
    return cable && !(link->flags & IFF_LOOPBACK) ? name : "";
  }

  std::string why_aside(const Nic& nic, const Link& link, const std::string& bottom) const {
    const std::string master = name_of(link.master), above = kind_of_master(link);
    if (above == "bond" || above == "team") return fmt::format("a port of {}", master);
    if (is_representor(link.port))
      return fmt::format("the host's end of a virtual function ({})", link.port);
    if (!bottom.empty() || nic.name == "lo") return "";
    if (link.kind == "bridge" || link.kind == "openvswitch")
      return fmt::format("a {} without a NIC, for traffic inside this host", link.kind);
    if (link.kind == "veth") return "a virtual cable with both ends on this host";
    if (link.kind == "dummy" || link.kind == "ifb" || link.kind == "vrf" || link.kind == "nlmon")
      return fmt::format("a device of kind {}, which has no cable", link.kind);
    return fmt::format("a tunnel ({}), whose packets leave by another interface", link.kind);
  }

  void describe(Nic& nic) const {
    const Link* link = link_of(nic.name);
    if (!link) return;
    const std::string bottom = bottom_of(nic.name);
    nic.aside = why_aside(nic, *link, bottom);
    nic.removed = bottom.empty() || link_of(bottom)->kind == "veth" ? 1 : 0;
    const bool bridge = link->kind == "bridge" || link->kind == "openvswitch";
    if (nic.removed > 0 && bridge) nic.removed = 2;
    const bool elsewhere = bottom == nic.name && link->far && link->lower > 0;
    nic.cable = elsewhere && link->kind != "veth"
                    ? fmt::format("interface {} elsewhere", link->lower)
                    : bottom;
    const Nic* below = nic_of(bottom);
    if (!below) return;
    if (const std::string pci = port_of_card(*below); !pci.empty())
      nic.cable = pci + read_line(root_ + "/class/net/" + bottom + "/dev_port");
    if (below == &nic) return;
    nic.pci = below->pci;
    nic.kind = below->kind;
    nic.pcie_gbps = below->pcie_gbps;
    nic.numa_node = below->numa_node;
    if (nic.rate_gbps <= 0) nic.rate_gbps = below->rate_gbps;
  }

  // Sets the cable of an RDMA device to its card port's cable, also for a virtual function. If the
  // device's interface has no address, takes the address of its master or of another interface on
  // the same cable.
  void describe_device(Nic& nic) const {
    nic.cable = nic.pci.empty() ? nic.name : port_of_card(nic);
    const Nic* net = nic_of(nic.netdev);
    if (!net || !net->address.empty()) return;
    for (const Nic& other : nics_)
      if (!other.rdma && other.aside.empty() && !other.address.empty() && !net->cable.empty() &&
          (other.cable == net->cable || other.name == name_of(link_of(net->name)->master))) {
        nic.address = other.address;
        nic.ipv6 = other.ipv6;
        nic.netdev = other.name;
        return;
      }
  }

  // If interfaces share a cable, the rail is one with an address, preferably the NIC.
  void one_rail_per_cable(bool rdma) const {
    std::map<std::string, std::vector<Nic*>> sharing;
    for (Nic& nic : nics_)
      if (nic.rdma == rdma && nic.aside.empty() && !nic.cable.empty())
        sharing[nic.cable].push_back(&nic);
    for (const auto& sharers : sharing) {
      const std::string& cable = sharers.first;
      const std::vector<Nic*>& all = sharers.second;
      const auto first = std::ranges::min_element(all, {}, [&](const Nic* nic) {
        const Link* link = link_of(nic->name);
        return std::tuple(!nic->up, nic->address.empty(), link && !link->kind.empty(),
                          rdma && nic->pci != cable);
      });
      for (Nic* nic : all)
        if (nic != *first) nic->aside = fmt::format("shares the cable of {}", (*first)->name);
    }
  }

  const std::string root_;
  const std::map<std::string, Link> links_;
  std::vector<Nic>& nics_;
};

}  // namespace

void find_cables(const std::string& root, bool live, std::vector<Nic>& nics) {
  Cables(root, links_of(root, live), nics).find();
}

}  // namespace weft::sysfs
