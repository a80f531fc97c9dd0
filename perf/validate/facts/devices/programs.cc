// What programs and the kernel's log say of this host: neighbours by lldpd, health by devlink.
#include <fcntl.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstdio>
#include <ctime>
#include <memory>
#include <nlohmann/json.hpp>
#include <sstream>

#include "perf/validate/facts/sources.h"
#include "topo/sysfs.h"

namespace weft::fabric {
namespace {

using Json = nlohmann::json;

std::string read_all(int file) {
  std::string text;
  std::array<char, 8192> part{};
  for (;;) {
    const ssize_t bytes = read(file, part.data(), part.size());
    if (bytes < 0 && errno == EPIPE) continue;  // the kernel's log lost records before this one
    if (bytes <= 0) return text;
    text.append(part.data(), static_cast<std::size_t>(bytes));
  }
}

// What a program prints, and of a recorded host the file of that name among its outputs; "" where
// there is neither.
std::string output_of(const std::string& command, const std::string& recording,
                      const Sources& sources) {
  const std::string line = "timeout 2 " + command + " 2>/dev/null";
  const std::unique_ptr<FILE, int (*)(FILE*)> from(
      sources.live ? popen(line.c_str(), "re")
                   : fopen((sources.outputs + "/" + recording).c_str(), "re"),
      sources.live ? pclose : fclose);
  return from ? read_all(fileno(from.get())) : "";
}

std::string text_at(const Json& json, const char* key) {
  const auto it = json.find(key);
  return json.is_object() && it != json.end() && it->is_string() ? it->get<std::string>() : "";
}

Json object_at(const Json& json, const char* key) {
  const auto it = json.find(key);
  return json.is_object() && it != json.end() && it->is_object() ? *it : Json::object();
}

// {"switch-1": {"id": ...}}, or {"id": ...} of a switch without a name.
std::string name_of_chassis(const Json& chassis) {
  if (chassis.empty()) return "";
  return chassis.contains("id") ? text_at(object_at(chassis, "id"), "value")
                                : chassis.items().begin().key();
}

// Microseconds since the machine started at which this process first asked.
std::uint64_t first_asked_us() {
  static const std::uint64_t first = [] {
    timespec now{};
    clock_gettime(CLOCK_MONOTONIC, &now);
    return static_cast<std::uint64_t>(now.tv_sec) * 1000000 +
           static_cast<std::uint64_t>(now.tv_nsec) / 1000;
  }();
  return first;
}

struct Health {
  std::uint64_t errors = 0, ill = 0;  // errors of all reporters, and reporters that are in error
};

// Of a PCI function, as its driver reports to devlink; nothing where it does not.
std::optional<Health> health_of(const std::string& pci, const Sources& sources) {
  const Json json = Json::parse(
      output_of("devlink -j health show pci/" + pci, "devlink.json", sources), nullptr, false);
  const Json all = object_at(json, "health");
  const auto reporters = all.find("pci/" + pci);
  if (reporters == all.end() || !reporters->is_array()) return std::nullopt;
  Health health;
  for (const Json& reporter : *reporters) {
    if (!reporter.is_object()) continue;
    const auto count = reporter.find("error");
    if (count != reporter.end() && count->is_number_unsigned())
      health.errors += count->get<std::uint64_t>();
    health.ill += text_at(reporter, "state") == "error";
  }
  return health;
}

}  // namespace

void take_neighbours(const std::string& text, std::vector<PortFacts>& ports) {
  const Json json = Json::parse(text, nullptr, false);
  const Json lldp = object_at(json, "lldp");
  const auto interfaces = lldp.find("interface");
  if (interfaces == lldp.end()) return;
  // A list of {"eth0": {...}}; one object of all where there is one neighbour.
  const Json list = interfaces->is_array() ? *interfaces : Json::array({*interfaces});
  for (const Json& entry : list)
    for (const auto& [name, neighbour] : entry.items())
      for (PortFacts& port : ports) {
        if (port.netdev != name || !neighbour.is_object()) continue;
        const std::string chassis = name_of_chassis(object_at(neighbour, "chassis"));
        if (chassis.empty()) continue;
        port.switch_name = chassis;
        port.switch_port = text_at(object_at(object_at(neighbour, "port"), "id"), "value");
      }
}

void read_neighbours(std::vector<PortFacts>& ports, const Sources& sources) {
  take_neighbours(output_of("lldpcli -f json show neighbors", "lldp.json", sources), ports);
}

std::optional<std::vector<KernelMessage>> kernel_log(const Sources& sources) {
  const std::string path = sources.live ? "/dev/kmsg" : sources.outputs + "/kmsg";
  const int file = open(path.c_str(), O_RDONLY | O_NONBLOCK | O_CLOEXEC);
  if (file < 0) return std::nullopt;
  std::istringstream lines(read_all(file));
  close(file);
  std::vector<KernelMessage> messages;
  for (std::string line; std::getline(lines, line);) {
    unsigned priority = 0;
    unsigned long long sequence = 0, us = 0;
    const auto text = line.find(';');
    if (text == std::string::npos ||
        std::sscanf(line.c_str(), "%u,%llu,%llu,", &priority, &sequence, &us) != 3)
      continue;  // keys and values of the message before it
    messages.push_back({static_cast<int>(priority & 7), us, line.substr(text + 1)});
  }
  return messages;
}

void health_counters(const PortFacts& port, const Sources& sources, Readings& into) {
  if (!port.pci || !sysfs::is_pci_address(*port.pci)) return;
  const std::uint64_t since = sources.live ? first_asked_us() : 0;
  if (const auto messages = kernel_log(sources)) {
    constexpr int kError = 3;  // KERN_ERR
    std::uint64_t errors = 0;
    for (const KernelMessage& one : *messages)
      errors += one.level <= kError && one.us >= since && one.text.find(*port.pci) != one.text.npos;
    into["log.errors"] = {ReadingState::kValue, errors};
  }
  if (const auto health = health_of(*port.pci, sources))
    into["devlink.errors"] = {ReadingState::kValue, health->errors};
}

void read_health(PortFacts& port, const Sources& sources) {
  if (!port.pci || !sysfs::is_pci_address(*port.pci)) return;
  if (const auto health = health_of(*port.pci, sources))
    port.gauges["devlink.ill"] = {ReadingState::kValue, health->ill};
}

}  // namespace weft::fabric
