// Reads the counters of ports, interfaces and TCP connections, and compares snapshots of them. Does
// not depend on the operation between two snapshots.
#include "topo/counters.h"

#include <arpa/inet.h>
#include <fmt/format.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <limits>
#include <sstream>
#include <string_view>

#include "topo/sysfs.h"

namespace weft {
namespace {

constexpr std::int64_t kNotThere = std::numeric_limits<std::int64_t>::min();

void read_folder(const std::string& folder, const std::string& prefix, CounterSnapshot& into) {
  for (const std::string& name : sysfs::list(folder)) {
    if (name == "lifespan") continue;  // the driver's caching period in ms
    const std::int64_t value = sysfs::read_integer(folder + "/" + name, kNotThere);
    if (value != kNotThere) into.emplace(prefix + name, value);
  }
}

std::string choose_port(const std::string& device, int port) {
  if (port > 0) return fmt::format("{}/ports/{}", device, port);
  std::string chosen;
  for (const std::string& number : sysfs::list(device + "/ports")) {
    const std::string candidate = device + "/ports/" + number;
    const bool active = sysfs::read_line(candidate + "/state").starts_with("4:");
    if (chosen.empty() || active) chosen = candidate;
    if (active) break;
  }
  return chosen;
}

// Reads field `name` of `protocol` in /proc/net/snmp: a line of names above a line of values.
std::int64_t read_snmp(const std::string& path, const std::string& protocol,
                       const std::string& name) {
  std::ifstream file(path);
  std::string names, values;
  while (std::getline(file, names) && std::getline(file, values)) {
    if (!names.starts_with(protocol + ":")) continue;
    std::istringstream words(names), numbers(values);
    std::string word, number;
    while (words >> word && numbers >> number) {
      if (word != name) continue;
      return std::strtoll(number.c_str(), nullptr, 10);
    }
  }
  return kNotThere;
}

bool has(std::string_view name, std::string_view word) {
  return name.find(word) != std::string_view::npos;
}

}  // namespace

CounterSnapshot read_counters(const Nic& rail, int port, const std::string& sysfs_root,
                              const std::string& proc_root) {
  CounterSnapshot counters;
  if (rail.rdma) {
    const std::string device = sysfs_root + "/class/infiniband/" + rail.name;
    const std::string folder = choose_port(device, port);
    if (!folder.empty()) {
      read_folder(folder + "/counters", "", counters);
      read_folder(folder + "/hw_counters", "", counters);
    }
    read_folder(device + "/hw_counters", "", counters);
  } else {
    const std::int64_t retransmits = read_snmp(proc_root + "/net/snmp", "Tcp", "RetransSegs");
    if (retransmits != kNotThere) counters["tcp.retransmits"] = retransmits;
  }
  if (!rail.netdev.empty()) {
    read_folder(sysfs_root + "/class/net/" + rail.netdev + "/statistics", "net.", counters);
  }
  return counters;
}

CounterSnapshot read_tcp_counters(int socket) {
  tcp_info info{};
  socklen_t bytes = sizeof info;
  if (getsockopt(socket, IPPROTO_TCP, TCP_INFO, &info, &bytes) != 0) return {};
  return {{"tcp.retransmits", info.tcpi_total_retrans},
          {"tcp.lost", info.tcpi_lost},
          {"tcp.reordering", info.tcpi_reordering},
          {"tcp.rtt_us", info.tcpi_rtt}};
}

CounterSnapshot read_connections(const std::string& address) {
  CounterSnapshot all{{"tcp.retransmits", 0}, {"tcp.connections", 0}};
  for (const std::string& name : sysfs::list("/proc/self/fd")) {
    const int fd = std::atoi(name.c_str());
    sockaddr_storage here{};
    socklen_t bytes = sizeof here;
    if (getsockname(fd, reinterpret_cast<sockaddr*>(&here), &bytes) != 0) continue;
    std::array<char, INET6_ADDRSTRLEN> text{};
    const void* number = nullptr;
    if (here.ss_family == AF_INET) number = &reinterpret_cast<sockaddr_in*>(&here)->sin_addr;
    if (here.ss_family == AF_INET6) number = &reinterpret_cast<sockaddr_in6*>(&here)->sin6_addr;
    if (!number || !inet_ntop(here.ss_family, number, text.data(), text.size())) continue;
    if (address != text.data()) continue;
    const CounterSnapshot one = read_tcp_counters(fd);  // empty if not TCP
    if (const auto it = one.find("tcp.retransmits"); it != one.end()) {
      all["tcp.retransmits"] += it->second;
      ++all["tcp.connections"];
    }
  }
  return all;
}

std::vector<CounterDelta> difference(const CounterSnapshot& before, const CounterSnapshot& after) {
  std::vector<CounterDelta> deltas;
  for (const auto& [name, value] : after) {
    const auto it = before.find(name);
    if (it == before.end()) continue;
    // A counter that decreased was reset, with a new connection or a device reset.
    const std::int64_t change = value >= it->second ? value - it->second : value;
    if (change != 0) deltas.push_back({name, change});
  }
  return deltas;
}

std::vector<CounterDelta> signs_of_trouble(const std::vector<CounterDelta>& deltas) {
  // Counters whose names contain a word of kFine count successes, or events that also occur on a
  // healthy fabric.
  constexpr std::array kBad = {
      "err",     "retr",   "drop",   "discard", "out_of",    "duplicate", "nak",
      "timeout", "lost",   "loss",   "cnp",     "ecn",       "xmit_wait", "pause",
      "flush",   "downed", "missed", "overrun", "collision", "fifo",      "congestion"};
  constexpr std::array kFine = {"adp_retrans_to_success"};
  std::vector<CounterDelta> bad;
  for (const CounterDelta& delta : deltas) {
    std::string name = delta.name;
    std::transform(name.begin(), name.end(), name.begin(),
                   [](unsigned char c) { return std::tolower(c); });
    const auto in_name = [&name](const char* word) { return has(name, word); };
    if (std::any_of(kBad.begin(), kBad.end(), in_name) &&
        std::none_of(kFine.begin(), kFine.end(), in_name)) {
      bad.push_back(delta);
    }
  }
  return bad;
}

std::string to_string(const std::vector<CounterDelta>& deltas) {
  std::string text;
  for (const CounterDelta& delta : deltas) {
    text += fmt::format("{}{} {:+}", text.empty() ? "" : ", ", delta.name, delta.change);
  }
  return text;
}

std::string evidence(int rail, const std::string& host, const std::vector<CounterDelta>& deltas) {
  if (deltas.empty()) return "";
  return fmt::format("rail {} host {}: {}", rail, host, to_string(deltas));
}

}  // namespace weft
