// Temperatures of a card (hwmon), and the PCIe settings that decide how fast a NIC reaches a GPU
// (configuration space, IOMMU group).
#include <algorithm>
#include <fstream>
#include <iterator>

#include "perf/validate/facts/sources.h"
#include "topo/sysfs.h"

namespace weft::fabric {
namespace {

constexpr int kMilli = 1000;

// Stores the hottest sensor of each kind: the card itself, and the module in its cage.
void take_sensors(const std::string& folder, Readings& gauges) {
  for (const std::string& file : sysfs::list(folder)) {
    if (!file.starts_with("temp") || !file.ends_with("_input")) continue;
    const std::string sensor = folder + "/" + file.substr(0, file.rfind('_'));
    const auto now = whole_of(sensor + "_input");
    if (!now || *now <= 0) continue;
    const bool module = line_of(sensor + "_label").value_or("").find("odule") != std::string::npos;
    const std::string name = module ? "module.celsius" : "nic.celsius";
    const auto celsius = static_cast<std::uint64_t>(*now / kMilli);
    if (gauges.contains(name) && gauges[name].value >= celsius) continue;
    gauges[name] = {ReadingState::kValue, celsius};
    auto most = whole_of(sensor + "_crit");
    if (!most) most = whole_of(sensor + "_max");
    if (most && *most > 0)
      gauges[name + ".most"] = {ReadingState::kValue, static_cast<std::uint64_t>(*most / kMilli)};
  }
}

// The configuration space of a PCI function: 64 bytes are world-readable, the rest needs root.
class Configuration {
 public:
  explicit Configuration(const std::string& path) {
    std::ifstream file(path, std::ios::binary);
    bytes_.assign(std::istreambuf_iterator<char>(file), {});
  }
  int word(std::size_t at) const {
    const auto byte = [&](std::size_t i) { return static_cast<unsigned char>(bytes_[i]); };
    return at + 1 < bytes_.size() ? byte(at) | byte(at + 1) << 8 : 0;
  }
  // Offset of a capability; 0 if absent or not readable.
  std::size_t capability(int id) const {
    constexpr std::size_t kFirst = 0x34;
    auto at = static_cast<std::size_t>(word(kFirst) & 0xfc);
    for (int steps = 0; at != 0 && steps < 48; ++steps) {
      if ((word(at) & 0xff) == id) return at;
      at = static_cast<std::size_t>(word(at) >> 8 & 0xfc);
    }
    return 0;
  }
  std::size_t extended(int id) const {
    std::size_t at = 0x100;
    for (int steps = 0; at >= 0x100 && steps < 96; ++steps) {
      if (word(at) == id) return at;
      at = static_cast<std::size_t>(word(at + 2) >> 4 & 0xffc);
    }
    return 0;
  }

 private:
  std::string bytes_;
};

}  // namespace

// Source: PCI Express Base Specification, 7.5.3.4 (Device Control) and 7.7.11 (ACS).
void read_card(PortFacts& port, const Sources& sources) {
  const std::string folder = device_folder(port, sources);
  if (folder.empty()) return;
  for (const std::string& monitor : sysfs::list(folder + "/hwmon"))
    take_sensors(folder + "/hwmon/" + monitor, port.gauges);
  constexpr int kExpress = 0x10, kAcs = 0x0d, kRelaxed = 1 << 4, kRedirect = 0x0c;
  const Configuration card(folder + "/config");
  if (const std::size_t at = card.capability(kExpress)) {
    const int control = card.word(at + 8);
    port.settings.emplace_back("relaxed ordering", (control & kRelaxed) != 0 ? "on" : "off");
    port.settings.emplace_back("read request", std::to_string(128 << (control >> 12 & 7)));
  }
  // ACS redirection in the upstream port sends NIC-to-GPU traffic through the root complex.
  if (const auto above = folder_above(folder); !above.empty()) {
    const Configuration bridge(above + "/config");
    if (const std::size_t at = bridge.extended(kAcs))
      port.settings.emplace_back("ACS redirect",
                                 (bridge.word(at + 6) & kRedirect) != 0 ? "on" : "off");
  }
  if (const auto type = line_of(folder + "/iommu_group/type"))
    port.settings.emplace_back("IOMMU", *type == "identity" ? "passthrough" : "translates");
}

}  // namespace weft::fabric
