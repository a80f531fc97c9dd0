// Interfaces, by rtnetlink for this network namespace or from class/net of a recorded tree, and the
// namespace's TCP counters.
#include <fmt/format.h>
#include <ifaddrs.h>
#include <linux/if_link.h>
#include <linux/rtnetlink.h>
#include <net/if.h>
#include <netinet/in.h>

#include <algorithm>
#include <array>
#include <bit>
#include <fstream>
#include <memory>
#include <set>
#include <sstream>

#include "perf/validate/facts/netlink.h"
#include "perf/validate/facts/sources.h"

namespace weft::fabric {
namespace {

std::vector<std::byte> ask_link(const std::string& name) {
  ifinfomsg header{};
  header.ifi_index = static_cast<int>(if_nametoindex(name.c_str()));
  if (header.ifi_index == 0) return {};
  return ask_kernel(RTM_GETLINK, std::as_bytes(std::span(&header, 1)), 0, "");
}

std::string text_of_mac(Attributes address) {
  std::string text;
  for (const std::byte byte : address)
    text += fmt::format("{}{:02x}", text.empty() ? "" : ":", std::to_integer<int>(byte));
  return text;
}

void take_link_attribute(int type, Attributes payload, PortFacts& port) {
  // RFC 2863, ifOperStatus, in the order of linux/if.h.
  constexpr std::array<const char*, 7> kStates = {"unknown", "notpresent", "down", "lowerlayerdown",
                                                  "testing", "dormant",    "up"};
  if (type == IFLA_MTU) {
    if (const auto mtu = value_in<std::uint32_t>(payload)) port.mtu = static_cast<int>(*mtu);
  } else if (type == IFLA_OPERSTATE) {
    const auto state = value_in<std::uint8_t>(payload);
    if (state && *state < kStates.size()) port.operstate = kStates[*state];
  } else if (type == IFLA_CARRIER) {
    if (const auto carrier = value_in<std::uint8_t>(payload)) port.carrier = *carrier != 0;
  } else if (type == IFLA_ADDRESS) {
    port.mac = text_of_mac(payload);
  }
}

void take_link_counter(int type, Attributes payload, Readings& into) {
  // The fields of rtnl_link_stats64, in order, with the names of class/net/*/statistics.
  constexpr const char* kNames[] = {
      "rx_packets",        "tx_packets",        "rx_bytes",         "tx_bytes",
      "rx_errors",         "tx_errors",         "rx_dropped",       "tx_dropped",
      "multicast",         "collisions",        "rx_length_errors", "rx_over_errors",
      "rx_crc_errors",     "rx_frame_errors",   "rx_fifo_errors",   "rx_missed_errors",
      "tx_aborted_errors", "tx_carrier_errors", "tx_fifo_errors",   "tx_heartbeat_errors",
      "tx_window_errors",  "rx_compressed",     "tx_compressed",    "rx_nohandler"};
  const auto put = [&](const char* name, std::uint64_t value) {
    into[std::string("net.") + name] = {ReadingState::kValue, value};
  };
  if (type == IFLA_STATS64) {
    for (const char* name : kNames) {
      const auto value = value_in<std::uint64_t>(payload);
      if (!value) return;
      put(name, *value);
      payload = payload.subspan(sizeof(std::uint64_t));
    }
    return;
  }
  const auto value = value_in<std::uint32_t>(payload);
  if (!value) return;
  if (type == IFLA_CARRIER_CHANGES) put("carrier_changes", *value);
  if (type == IFLA_CARRIER_UP_COUNT) put("carrier_up_count", *value);
  if (type == IFLA_CARRIER_DOWN_COUNT) put("carrier_down_count", *value);
}

// Returns "10.0.1.0/24" for the first IPv4 address of an interface of this network namespace.
std::optional<std::string> subnet_of(const std::string& netdev) {
  ifaddrs* first = nullptr;
  if (getifaddrs(&first) != 0) return std::nullopt;
  const std::unique_ptr<ifaddrs, decltype(&freeifaddrs)> owner(first, freeifaddrs);
  const auto number = [](const sockaddr* a) {
    return ntohl(reinterpret_cast<const sockaddr_in*>(a)->sin_addr.s_addr);
  };
  for (const ifaddrs* it = first; it != nullptr; it = it->ifa_next) {
    if (netdev != it->ifa_name || !it->ifa_addr || !it->ifa_netmask) continue;
    if (it->ifa_addr->sa_family != AF_INET) continue;
    const std::uint32_t mask = number(it->ifa_netmask), net = number(it->ifa_addr) & mask;
    return fmt::format("{}.{}.{}.{}/{}", net >> 24, net >> 16 & 255, net >> 8 & 255, net & 255,
                       std::popcount(mask));
  }
  return std::nullopt;
}

// With arp_ignore 0, an interface answers for every address of its host.
std::optional<bool> arp_for_all_of(const std::string& netdev, const std::string& proc) {
  const std::string settings = proc + "/sys/net/ipv4/conf/";
  const auto all = whole_of(settings + "all/arp_ignore");
  const auto own = whole_of(settings + netdev + "/arp_ignore");
  if (!all || !own) return std::nullopt;
  return std::max(*all, *own) == 0;
}

// Fields of a protocol in /proc/net/snmp or netstat: a line of names above a line of values.
void read_protocol(const std::string& path, const std::string& protocol, Readings& into) {
  // Settings and gauges, not event counters.
  static const std::set<std::string> kNoCounters = {"RtoAlgorithm", "RtoMin", "RtoMax", "MaxConn",
                                                    "CurrEstab"};
  std::ifstream file(path);
  for (std::string names, values; std::getline(file, names) && std::getline(file, values);) {
    std::istringstream words(names), numbers(values);
    std::string word, number;
    if (!(words >> word && numbers >> number) || word != protocol + ":" || number != word) continue;
    while (words >> word && numbers >> number)
      if (!kNoCounters.contains(word)) into.try_emplace("tcp." + word, reading_from(number));
  }
}

}  // namespace

void read_net(PortFacts& port, const Sources& sources) {
  if (port.netdev.empty()) return;
  port.arp_for_all = arp_for_all_of(port.netdev, sources.proc);
  if (sources.live) {
    port.subnet = subnet_of(port.netdev);
    const std::vector<std::byte> answer = ask_link(port.netdev);
    for_each_attribute(
        answer, [&](int type, Attributes payload) { take_link_attribute(type, payload, port); });
    return;
  }
  const std::string folder = net_folder(port, sources);
  port.operstate = line_of(folder + "/operstate");
  if (const auto carrier = whole_of(folder + "/carrier")) port.carrier = *carrier != 0;
  port.mtu = whole_of(folder + "/mtu");
  port.mac = line_of(folder + "/address");
}

void net_counters(const PortFacts& port, const Sources& sources, Readings& into) {
  if (port.netdev.empty()) return;
  if (sources.live) {
    const std::vector<std::byte> answer = ask_link(port.netdev);
    for_each_attribute(
        answer, [&](int type, Attributes payload) { take_link_counter(type, payload, into); });
    return;
  }
  const std::string folder = net_folder(port, sources);
  read_folder(folder + "/statistics", "net.", into);
  for (const char* name : {"carrier_changes", "carrier_up_count", "carrier_down_count"})
    if (const Reading reading = reading_of(folder + "/" + name);
        reading.state != ReadingState::kAbsent)
      into[std::string("net.") + name] = reading;
}

void tcp_counters(const Sources& sources, Readings& into) {
  read_protocol(sources.proc + "/net/snmp", "Tcp", into);
  read_protocol(sources.proc + "/net/netstat", "TcpExt", into);
}

}  // namespace weft::fabric
