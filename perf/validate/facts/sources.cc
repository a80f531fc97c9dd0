// Reads lines and finds folders in the trees with the facts. Does not interpret the files.
#include "perf/validate/facts/sources.h"

#include <net/if.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <filesystem>
#include <fstream>

#include "topo/sysfs.h"

namespace weft::fabric {
namespace {

bool is_folder(const std::string& path) {
  std::error_code error;
  return std::filesystem::is_directory(path, error);
}

}  // namespace

std::optional<std::string> line_of(const std::string& path) {
  std::string line = sysfs::read_line(path);
  if (line.empty()) return std::nullopt;
  return line;
}

std::optional<int> whole_of(const std::string& path) {
  constexpr std::int64_t kNone = INT64_MIN;
  const std::int64_t value = sysfs::read_integer(path, kNone);
  if (value < INT32_MIN || value > INT32_MAX) return std::nullopt;
  return static_cast<int>(value);
}

Reading reading_from(const std::string& text) {
  if (text.starts_with("N/A")) return {ReadingState::kNotAvailable, 0};
  std::uint64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (text.empty() || error != std::errc() || end != text.data() + text.size())
    return {ReadingState::kUnreadable, 0};
  return {ReadingState::kValue, value};
}

Reading reading_of(const std::string& path) {
  std::error_code error;
  if (!std::filesystem::exists(path, error)) return {};
  return reading_from(sysfs::read_line(path));
}

void read_folder(const std::string& folder, const std::string& prefix, Readings& into) {
  for (const std::string& name : sysfs::list(folder))
    into.try_emplace(prefix + name, reading_of(folder + "/" + name));
}

std::string after_colon(const std::string& text) {
  const auto colon = text.find(": ");
  return colon == std::string::npos ? text : text.substr(colon + 2);
}

bool excluded(const PortFacts& port, const Sources& sources) {
  return std::ranges::any_of(sources.excluded_devices, [&](const std::string& name) {
    return !name.empty() && (name == port.device || name == port.netdev || name == port.pci);
  });
}

std::string ib_folder(const PortFacts& port, const Sources& sources) {
  return port.rdma ? sources.sysfs + "/class/infiniband/" + port.device : "";
}

std::string ib_port_folder(const PortFacts& port, const Sources& sources) {
  if (port.ib_port == 0) return "";
  return ib_folder(port, sources) + "/ports/" + std::to_string(port.ib_port);
}

std::string net_folder(const PortFacts& port, const Sources& sources) {
  if (port.netdev.empty()) return "";
  const std::string folder = sources.sysfs + "/class/net/" + port.netdev;
  if (!sources.live) return folder;
  // Interfaces of two namespaces may have the same name and even the same index.
  const auto index = static_cast<std::int64_t>(if_nametoindex(port.netdev.c_str()));
  const bool ours = sysfs::read_integer(folder + "/ifindex", -1) == index &&
                    line_of(folder + "/address") == port.mac;
  return ours ? folder : "";
}

std::string recording_of(const PortFacts& port, const Sources& sources) {
  if (sources.live || sources.ethtool_folder.empty() || port.netdev.empty()) return "";
  return sources.ethtool_folder + "/" + port.netdev + ".txt";
}

std::string folder_above(const std::string& device) {
  std::error_code error;
  const auto above = std::filesystem::canonical(device, error).parent_path();
  return !error && sysfs::is_pci_address(above.filename()) ? above.string() : "";
}

std::string device_folder(const PortFacts& port, const Sources& sources) {
  const std::string net = port.rdma ? "" : net_folder(port, sources);
  const std::string device = port.rdma ? ib_folder(port, sources) : net;
  if (!device.empty() && is_folder(device + "/device")) return device + "/device";
  return port.pci ? sources.sysfs + "/bus/pci/devices/" + *port.pci : "";
}

}  // namespace weft::fabric
