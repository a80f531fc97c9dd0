// The PCI function of a port: link, NUMA node, driver, and AER error counters.
#include <filesystem>
#include <fstream>
#include <sstream>

#include "perf/validate/facts/sources.h"
#include "topo/sysfs.h"

namespace weft::fabric {
namespace {

// "32.0 GT/s PCIe"; "Unknown" if the function has no link of its own (a virtual function).
std::optional<std::string> speed_of(const std::string& path) {
  auto speed = line_of(path);
  if (speed && speed->starts_with("Unknown")) return std::nullopt;
  return speed;
}

std::optional<int> width_of(const std::string& path) {
  const auto width = whole_of(path);
  return width && *width > 0 && *width <= 32 ? width : std::nullopt;
}

// Returns the driver from the symlink, or from uevent in trees copied without symlinks, with the
// module's version if it has one.
std::optional<std::string> driver_of(const std::string& folder, const Sources& sources) {
  std::error_code error;
  const auto link = std::filesystem::read_symlink(folder + "/driver", error);
  std::string driver =
      error ? sysfs::read_field(folder + "/uevent", "DRIVER=") : link.filename().string();
  if (driver.empty()) return std::nullopt;
  if (const auto version = line_of(sources.sysfs + "/module/" + driver + "/version"))
    driver += " " + *version;
  return driver;
}

// Lines are like "BadTLP 3"; totals (TOTAL_ERR_FATAL and so on) have a different name in each file.
void read_aer(const std::string& path, const std::string& prefix, Readings& into) {
  std::ifstream file(path);
  for (std::string line; std::getline(file, line);) {
    std::istringstream words(line);
    std::string name, number;
    if (!(words >> name >> number)) continue;
    const bool total = name.starts_with("TOTAL_");
    into.try_emplace("pci." + (total ? "" : prefix) + name, reading_from(number));
  }
}

}  // namespace

void read_pci(PortFacts& port, const Sources& sources) {
  const std::string folder = device_folder(port, sources);
  if (folder.empty()) return;
  if (!port.pci)
    if (const std::string pci = sysfs::pci_address(folder); !pci.empty()) port.pci = pci;
  port.pcie_speed = speed_of(folder + "/current_link_speed");
  port.pcie_most_speed = speed_of(folder + "/max_link_speed");
  port.pcie_width = width_of(folder + "/current_link_width");
  port.pcie_most_width = width_of(folder + "/max_link_width");
  if (const std::string slot = folder_above(folder); !slot.empty()) {
    port.slot_most_speed = speed_of(slot + "/max_link_speed");
    port.slot_most_width = width_of(slot + "/max_link_width");
  }
  const auto node = whole_of(folder + "/numa_node");
  if (node && *node >= 0) port.numa_node = node;
  port.local_cpus = line_of(folder + "/local_cpulist");
  port.driver = driver_of(folder, sources);
}

void pci_counters(const PortFacts& port, const Sources& sources, Readings& into) {
  const std::string folder = device_folder(port, sources);
  if (folder.empty()) return;
  read_aer(folder + "/aer_dev_correctable", "", into);
  read_aer(folder + "/aer_dev_nonfatal", "nonfatal.", into);
  read_aer(folder + "/aer_dev_fatal", "fatal.", into);
}

}  // namespace weft::fabric
