// Finds NICs and RDMA devices of this host, from sysfs and this network namespace.
#include <fcntl.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netdb.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <map>
#include <memory>

#include "topo/sysfs.h"

namespace weft::sysfs {

namespace fs = std::filesystem;

namespace {

constexpr unsigned kFlagUp = 0x1;  // IFF_UP in class/net/*/flags

// State of an interface in this network namespace.
struct Live {
  unsigned flags = 0;
  unsigned index = 0;
  std::string ipv4, ipv6;
};

std::string numeric_address(const sockaddr* address) {
  const socklen_t size = address->sa_family == AF_INET ? sizeof(sockaddr_in) : sizeof(sockaddr_in6);
  char text[NI_MAXHOST] = "";
  if (getnameinfo(address, size, text, sizeof(text), nullptr, 0, NI_NUMERICHOST) != 0) return "";
  return text;
}

std::map<std::string, Live> live_interfaces() {
  std::map<std::string, Live> result;
  ifaddrs* first = nullptr;
  if (getifaddrs(&first) != 0) return result;
  const std::unique_ptr<ifaddrs, decltype(&freeifaddrs)> owner(first, freeifaddrs);
  for (const ifaddrs* it = first; it != nullptr; it = it->ifa_next) {
    if (it->ifa_name == nullptr) continue;
    // An address may have a label ("eth0:1"); the interface is before the colon.
    const std::string name =
        std::string(it->ifa_name).substr(0, std::string(it->ifa_name).find(':'));
    Live& live = result[name];
    live.flags = it->ifa_flags;
    live.index = if_nametoindex(name.c_str());
    if (it->ifa_addr == nullptr) continue;
    // The loopback device may also have an address of the host.
    const bool own = live.ipv4.starts_with("127.");
    if (it->ifa_addr->sa_family == AF_INET && (live.ipv4.empty() || own)) {
      live.ipv4 = numeric_address(it->ifa_addr);
    } else if (it->ifa_addr->sa_family == AF_INET6 && (live.ipv6.empty() || live.ipv6 == "::1")) {
      // Peers cannot use a link-local address, since they do not share its interface.
      const auto* ipv6 = reinterpret_cast<const sockaddr_in6*>(it->ifa_addr);
      if (!IN6_IS_ADDR_LINKLOCAL(&ipv6->sin6_addr)) live.ipv6 = numeric_address(it->ifa_addr);
    }
  }
  return result;
}

bool up_in_tree(const std::string& directory) {
  if ((read_integer(directory + "/flags", 0) & kFlagUp) == 0) return false;
  const std::string state = read_line(directory + "/operstate");
  // Drivers without link detection, and loopback, report "unknown".
  return state == "up" || (state == "unknown" && read_integer(directory + "/carrier", 1) != 0);
}

// Returns Gb/s, 0 if unknown: `speed` is in Mb/s, or -1 or an error while the link is down.
double netdev_rate(const std::string& directory, bool physical) {
  if (!physical) {
    // veth and tun report a fictitious speed (10000). Bonds, VLANs and bridges report the speed of
    // the device below them, to which they link.
    const auto names = list(directory);
    if (std::none_of(names.begin(), names.end(),
                     [](const std::string& name) { return name.starts_with("lower_"); })) {
      return 0;
    }
  }
  const std::int64_t mbps = read_integer(directory + "/speed", 0);
  // Some drivers print an unknown speed as an unsigned number.
  return mbps > 0 && mbps < 0x7fffffff ? static_cast<double>(mbps) / 1000 : 0;
}

// Parses "100 Gb/sec (4X EDR)" as 100; 0 for any other text.
double rdma_rate(const std::string& text) {
  char* end = nullptr;
  const double gbps = std::strtod(text.c_str(), &end);
  if (end == text.c_str() || !std::string(end).starts_with(" Gb/sec")) return 0;
  return gbps > 0 && gbps < 1e6 ? gbps : 0;
}

// Returns the interface of an RDMA device: of the first GID of its port with an interface,
// otherwise of its PCI function, otherwise (Soft-RoCE) its parent.
std::string rdma_netdev(const std::string& directory, const std::string& port) {
  const std::string ndevs = port + "/gid_attrs/ndevs";
  for (const std::string& gid : list(ndevs)) {
    if (std::string name = read_line(ndevs + "/" + gid); !name.empty()) return name;
  }
  if (const auto names = list(directory + "/device/net"); !names.empty()) return names.front();
  return read_line(directory + "/parent");
}

// Returns the letters at the start of a name, as a substitute for the driver's name.
std::string stem(const std::string& name) {
  return name.substr(0, name.find_first_of("0123456789"));
}

// Describes the port's hardware: card, virtual function, PCIe lanes.
void describe_card(const std::string& root, const std::string& directory, Nic& nic) {
  if (nic.pci.empty() && !nic.rdma) return;
  const std::string function = root + "/bus/pci/devices/" + nic.pci;
  std::string card = nic.pci.empty() ? "" : read_line(function + "/device");
  for (const char* file : {"/hca_type", "/board_id"})
    if (card.empty() && nic.rdma) card = read_line(directory + file);
  if (!nic.pci.empty()) card = read_line(function + "/vendor") + ":" + card;
  std::error_code error;
  if (fs::exists(function + "/physfn", error) && !nic.pci.empty()) card += " VF";
  const std::int64_t lanes = read_integer(function + "/max_link_width", 0);
  const std::string speed = read_line(function + "/max_link_speed");
  const double gts = std::strtod(speed.c_str(), nullptr);
  if (!nic.pci.empty() && lanes > 0 && lanes <= 32 && gts > 0 && gts < 1000) {
    nic.pcie_gbps = gts * static_cast<double>(lanes);
    card += " x" + std::to_string(lanes) + " of " + speed;
  }
  nic.kind = card.empty() ? stem(nic.name) : card;
}

Nic rdma_device(const std::string& root, const std::string& name) {
  const std::string directory = root + "/class/infiniband/" + name;
  Nic nic;
  nic.name = name;
  nic.rdma = true;
  // rdma_node_type in the kernel's ib_verbs.h: 5 and 6 are usNIC, 7 ("unspecified") is EFA. The
  // other types (1: CA, 4: RNIC) support reliable connections.
  const std::string type = read_line(directory + "/node_type");
  nic.no_rc = !type.empty() && std::string_view("567").find(type.front()) != std::string_view::npos;
  nic.pci = pci_address(directory + "/device");
  nic.numa_node = pci_numa_node(root, nic.pci);
  describe_card(root, directory, nic);
  std::string port;  // the first active port, or the first port
  for (const std::string& number : list(directory + "/ports")) {
    const std::string candidate = directory + "/ports/" + number;
    const bool active = read_line(candidate + "/state").starts_with("4:");
    if (port.empty() || active) port = candidate;
    if (active) {
      nic.up = true;
      break;
    }
  }
  if (!port.empty()) {
    nic.rate_gbps = rdma_rate(read_line(port + "/rate"));
    nic.netdev = rdma_netdev(directory, port);
    nic.kind = read_line(port + "/link_layer") + " " + nic.kind;
    const std::string physical = read_line(port + "/phys_state");
    nic.link = nic.up || physical.ends_with("LinkUp");
    const std::string state = read_line(port + "/state");
    const auto word = [](const std::string& text) { return text.substr(text.find(' ') + 1); };
    if (!nic.up && !state.empty())
      nic.state = word(state) + (physical.empty() ? "" : ", " + word(physical));
  }
  return nic;
}

Nic interface(const std::string& root, const std::string& name) {
  const std::string directory = root + "/class/net/" + name;
  Nic nic;
  nic.name = nic.netdev = name;
  nic.pci = pci_address(directory + "/device");
  nic.numa_node = pci_numa_node(root, nic.pci);
  nic.rate_gbps = netdev_rate(directory, !nic.pci.empty());
  nic.up = up_in_tree(directory);
  nic.link = nic.up;
  describe_card(root, directory, nic);
  return nic;
}

}  // namespace

std::vector<Nic> discover_nics(const std::string& root, bool live) {
  std::vector<Nic> nics;
  const std::map<std::string, Live> interfaces =
      live ? live_interfaces() : std::map<std::string, Live>();
  if (live && !interfaces.empty()) {
    for (const auto& [name, state] : interfaces) {
      const bool in_tree =
          read_integer(root + "/class/net/" + name + "/ifindex", -1) == std::int64_t{state.index};
      Nic nic;
      if (in_tree) nic = interface(root, name);
      nic.name = nic.netdev = name;
      nic.up = (state.flags & IFF_UP) != 0 && (state.flags & IFF_RUNNING) != 0;
      nics.push_back(std::move(nic));
    }
  } else {
    for (const std::string& name : list(root + "/class/net")) {
      // class/net also contains files, such as bonding_masters.
      std::error_code error;
      if (!fs::is_directory(root + "/class/net/" + name, error)) continue;
      nics.push_back(interface(root, name));
    }
  }
  for (const std::string& name : list(root + "/class/infiniband")) {
    nics.push_back(rdma_device(root, name));
    nics.back().closed = live && nics.back().up && !why_not_opened(root, "/dev", name).empty();
  }
  for (Nic& nic : nics) {
    const auto it = interfaces.find(nic.netdev);
    if (it == interfaces.end()) continue;
    nic.address = it->second.ipv4;
    (nic.address.empty() ? nic.address : nic.ipv6) = it->second.ipv6;
  }
  find_cables(root, live, nics);
  std::sort(nics.begin(), nics.end(), before);
  return nics;
}

std::string why_not_opened(const std::string& root, const std::string& dev,
                           const std::string& device) {
  const std::string folder = dev + "/infiniband";
  std::error_code ignored;
  if (!fs::exists(folder, ignored)) return folder + " is not in this container";
  const std::string verbs = root + "/class/infiniband_verbs";
  for (const std::string& name : list(verbs)) {
    if (read_line(verbs + "/" + name + "/ibdev") != device) continue;
    const std::string node = folder + "/" + name;
    const int fd = open(node.c_str(), O_RDWR | O_CLOEXEC);
    if (fd < 0 && errno == ENOENT) return node + " is not in this container";
    if (fd < 0) return node + ": " + std::strerror(errno);
    close(fd);
  }
  return "";
}

}  // namespace weft::sysfs
