// Facts from programs and the kernel log: neighbors from lldpd, health from devlink, links from
// mlxlink and nvidia-smi.
#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <numeric>
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
    if (bytes < 0 && errno == EPIPE) continue;  // the kernel log has overwritten older records
    if (bytes <= 0) return text;
    text.append(part.data(), static_cast<std::size_t>(bytes));
  }
}

// Returns the output of a program or, for a recorded host, the file `recording` in
// `sources.outputs`; "" if neither exists.
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

// Parses {"switch-1": {"id": ...}}, or {"id": ...} for a switch without a name.
std::string name_of_chassis(const Json& chassis) {
  if (chassis.empty()) return "";
  return chassis.contains("id") ? text_at(object_at(chassis, "id"), "value")
                                : chassis.items().begin().key();
}

std::string mlxlink_of(const PortFacts& port, const Sources& sources) {
  if (sources.live && (!port.pci || !sysfs::is_pci_address(*port.pci))) return "";
  return output_of("mlxlink -m -c -d " + port.pci.value_or(""), "mlxlink." + port.device + ".txt",
                   sources);
}

std::uint64_t whole(double value) { return static_cast<std::uint64_t>(std::max(value, 0.0)); }

// Calls take(key, value) for each line "key   : value" that mlxlink printed.
template <typename Take>
void each_line(const std::string& text, Take take) {
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);)
    if (const auto colon = line.find(" : "); colon != std::string::npos)
      take(line.substr(0, line.find_last_not_of(' ', colon) + 1), line.substr(colon + 3));
}

// Parses "0,0,12,0" and "41 [-10..70]" (the numbers before the bracket); "N/A" yields none.
std::vector<double> numbers_in(const std::string& value) {
  std::vector<double> numbers;
  const char* at = value.c_str();
  for (char* end = nullptr;; at = end + 1) {
    const double number = std::strtod(at, &end);
    if (end == at) return numbers;
    numbers.push_back(number);
    if (*end != ',') return numbers;
  }
}

// Microseconds from boot to this process's first call.
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
  std::uint64_t errors = 0, ill = 0;  // errors of all reporters; reporters in state "error"
};

// Health that the driver of a PCI function reports to devlink; nullopt if it reports none.
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
  // A list of {"eth0": {...}}, or a single object if there is only one neighbor.
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
      continue;  // a continuation line: keys and values of the previous message
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
  if (!sources.live) take_mlxlink_counters(mlxlink_of(port, sources), into);
  if (const auto health = health_of(*port.pci, sources))
    into["devlink.errors"] = {ReadingState::kValue, health->errors};
}

void read_health(PortFacts& port, const Sources& sources) {
  if (!port.pci || !sysfs::is_pci_address(*port.pci)) return;
  if (const auto health = health_of(*port.pci, sources))
    port.gauges["devlink.ill"] = {ReadingState::kValue, health->ill};
  // mlxlink takes a second, so it is run only for ports without a netdev (no ethtool data).
  if (!sources.live || (port.rdma && port.netdev.empty()))
    take_mlxlink(mlxlink_of(port, sources), port);
}

void take_mlxlink(const std::string& text, PortFacts& port) {
  const auto has_fec =
      std::ranges::any_of(port.settings, [](const auto& one) { return one.first == "FEC"; });
  const auto put = [&](const std::string& name, double value) {
    if (value > 0) port.gauges.try_emplace(name, Reading{ReadingState::kValue, whole(value)});
  };
  each_line(text, [&](const std::string& key, const std::string& value) {
    if (key == "FEC" && !has_fec && value != "N/A")
      port.settings.emplace_back("FEC", value.find("RS") != value.npos         ? "RS"
                                        : value.find("No FEC") != value.npos   ? "off"
                                        : value.find("Firecode") != value.npos ? "BaseR"
                                                                               : value);
    const std::vector<double> now = numbers_in(value);
    const auto limits = value.find('['), dots = value.find("..");
    const bool limited = limits != std::string::npos && dots != std::string::npos;
    const double low = limited ? std::strtod(value.c_str() + limits + 1, nullptr) : 0;
    const double high = limited ? std::strtod(value.c_str() + dots + 2, nullptr) : 0;
    if (now.empty()) return;
    if (key == "Temperature [C]") {
      put("module.celsius", now[0]);
      if (limited) put("module.celsius.most", high);
    }
    const auto tenth_uw = [](double dbm) { return 1e4 * std::pow(10, dbm / 10); };
    if (key == "Rx Power Current [dBm]") {
      put("module.received_tenth_uw", tenth_uw(std::ranges::min(now)));
      if (limited) put("module.received_tenth_uw.least", tenth_uw(low));
    }
  });
}

void take_mlxlink_counters(const std::string& text, Readings& into) {
  each_line(text, [&](const std::string& key, const std::string& value) {
    const char* name = key == "Effective Physical Errors"      ? "mlxlink.effective_errors"
                       : key == "Raw Physical Errors Per Lane" ? "mlxlink.raw_errors"
                                                               : nullptr;
    const std::vector<double> lanes = numbers_in(value);
    if (name && !lanes.empty())
      into[name] = {ReadingState::kValue, whole(std::accumulate(lanes.begin(), lanes.end(), 0.0))};
  });
}

void take_nvlinks(const std::string& text, Readings& gpu_state) {
  std::map<int, std::uint64_t> active, errors;
  int gpu = -1;
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) {
    int link = 0, at = 0;
    if (std::sscanf(line.c_str(), "GPU %d:", &gpu) == 1) {
      active[gpu];
    } else if (gpu >= 0 && std::sscanf(line.c_str(), " Link %d:%n", &link, &at) == 1 && at > 0) {
      const std::string state = line.substr(static_cast<std::size_t>(at));
      if (const auto count = state.find("Errors: "); count != state.npos)
        errors[gpu] += std::strtoull(state.c_str() + count + 8, nullptr, 10);
      else
        active[gpu] += state.find("inactive") == state.npos;
    }
  }
  std::uint64_t most = 0;
  for (const auto& [index, links] : active) most = std::max(most, links);
  for (const auto& [index, links] : active) {
    const std::string name = "gpu" + std::to_string(index) + ".nvlink";
    if (most > 0)
      gpu_state.try_emplace(name + "s_down", Reading{ReadingState::kValue, most - links});
    if (errors.contains(index))
      gpu_state.try_emplace(name + "_errors", Reading{ReadingState::kValue, errors[index]});
  }
}

void read_nvlinks(HostFacts& host, const Sources& sources) {
  if (!sources.live) take_nvlinks(output_of("", "nvlink.txt", sources), host.gpu_state);
}

}  // namespace weft::fabric
