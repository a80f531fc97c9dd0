// Finds the GPUs of this host by PCI class, without driver libraries.
#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "topo/sysfs.h"

namespace weft::sysfs {

namespace {

constexpr std::int64_t kNvidia = 0x10de, kAmd = 0x1002, kIntel = 0x8086;

bool is_gpu(std::int64_t pci_class, std::int64_t vendor) {
  switch (pci_class >> 8) {
    case 0x0300:  // VGA: on most servers the BMC's
      return vendor == kNvidia || vendor == kAmd || vendor == kIntel;
    case 0x0302:  // 3D controller
      return true;
    case 0x0380:  // other display: AMD Instinct up to MI200, Intel's data-center GPUs
    case 0x1200:  // processing accelerator: AMD Instinct from MI300
      return vendor == kAmd || vendor == kIntel;
    default:
      return false;
  }
}

std::string vendor_name(std::int64_t vendor) {
  switch (vendor) {
    case kNvidia:
      return "NVIDIA";
    case kAmd:
      return "AMD";
    case kIntel:
      return "Intel";
    default:
      return fmt::format("vendor {:04x}", vendor);
  }
}

}  // namespace

std::vector<Gpu> discover_gpus(const std::string& root, const std::string& proc_root) {
  const std::string nvidia = proc_root + "/driver/nvidia/gpus";
  const bool nvidia_lists = !proc_root.empty() && !list(nvidia).empty();
  std::vector<Gpu> gpus;
  std::vector<std::int64_t> vendors;
  bool nvswitch = false;
  std::vector<std::string> functions = list(root + "/bus/pci/devices");
  // Sorts by address; natural order would parse 3b as 3. A longer address has a larger domain
  // number.
  std::sort(functions.begin(), functions.end(), [](const std::string& a, const std::string& b) {
    return std::pair(a.size(), a) < std::pair(b.size(), b);
  });
  for (const std::string& pci : functions) {
    if (!is_pci_address(pci)) continue;
    const std::string directory = root + "/bus/pci/devices/" + pci;
    const std::int64_t pci_class = read_integer(directory + "/class", 0);
    const std::int64_t vendor = read_integer(directory + "/vendor", 0);
    // NVSwitches appear as NVIDIA bridges.
    if (vendor == kNvidia && pci_class >> 8 == 0x0680) nvswitch = true;
    if (!is_gpu(pci_class, vendor)) continue;
    Gpu gpu;
    gpu.pci = pci;
    gpu.numa_node = pci_numa_node(root, pci);
    gpu.name =
        fmt::format("{} {:04x}", vendor_name(vendor), read_integer(directory + "/device", 0));
    if (vendor == kNvidia && nvidia_lists) {
      // In a container the driver lists only the container's GPUs.
      const std::string model = read_field(nvidia + "/" + pci + "/information", "Model:");
      if (model.empty()) continue;
      gpu.name = model;
    }
    gpus.push_back(std::move(gpu));
    vendors.push_back(vendor);
  }
  if (nvswitch) {
    for (std::size_t i = 0; i < gpus.size(); ++i) {
      if (vendors[i] == kNvidia) gpus[i].domain = 0;
    }
  }
  return gpus;
}

}  // namespace weft::sysfs
