// Discovers this host: devices from sysfs, processors and GPU links from hwloc.
#include "topo/discover.h"

#include <hwloc.h>
#include <hwloc/distances.h>
#include <unistd.h>

#include <array>
#include <cstdlib>
#include <map>
#include <memory>
#include <set>

#include "topo/sysfs.h"

namespace weft {

namespace {

using Hwloc = std::unique_ptr<hwloc_topology, decltype(&hwloc_topology_destroy)>;

// Returns null if hwloc fails. Discovery of I/O devices takes milliseconds, so it is enabled only
// with GPUs.
Hwloc load_hwloc(bool with_io) {
  hwloc_topology_t topology = nullptr;
  if (hwloc_topology_init(&topology) != 0) return {nullptr, hwloc_topology_destroy};
  Hwloc owner(topology, hwloc_topology_destroy);
  // These components would initialize the GPU drivers, which needs seconds and GPU memory.
  for (const char* component : {"cuda", "opencl", "gl"}) {
    hwloc_topology_set_components(topology, HWLOC_TOPOLOGY_COMPONENTS_FLAG_BLACKLIST, component);
  }
  if (with_io) hwloc_topology_set_io_types_filter(topology, HWLOC_TYPE_FILTER_KEEP_IMPORTANT);
  if (hwloc_topology_load(topology) != 0) owner.reset();
  return owner;
}

std::string to_list(hwloc_const_bitmap_t set) {
  char* text = nullptr;
  if (set == nullptr || hwloc_bitmap_list_asprintf(&text, set) < 0) return "";
  const std::unique_ptr<char, decltype(&free)> owner(text, free);
  return text;
}

// Counts the cores (or PUs if hwloc reports no cores) that this process may run on.
int count_cores(hwloc_topology_t topology) {
  const std::unique_ptr<hwloc_bitmap_s, decltype(&hwloc_bitmap_free)> allowed(hwloc_bitmap_alloc(),
                                                                              hwloc_bitmap_free);
  if (!allowed || hwloc_get_cpubind(topology, allowed.get(), HWLOC_CPUBIND_PROCESS) != 0) {
    return hwloc_get_nbobjs_by_type(topology, HWLOC_OBJ_CORE);
  }
  for (const hwloc_obj_type_t type : {HWLOC_OBJ_CORE, HWLOC_OBJ_PU}) {
    int count = 0;
    for (hwloc_obj_t it = nullptr; (it = hwloc_get_next_obj_by_type(topology, type, it));) {
      count += hwloc_bitmap_intersects(it->cpuset, allowed.get()) ? 1 : 0;
    }
    if (count > 0) return count;
  }
  return 0;
}

void read_processors(hwloc_topology_t topology, HostDescription& host) {
  host.cores = count_cores(topology);
  const hwloc_obj_t package = hwloc_get_obj_by_type(topology, HWLOC_OBJ_PACKAGE, 0);
  const char* model =
      package == nullptr ? nullptr : hwloc_obj_get_info_by_name(package, "CPUModel");
  if (model != nullptr) host.cpu_model = model;
  std::vector<NumaNode> nodes;
  for (hwloc_obj_t it = nullptr;
       (it = hwloc_get_next_obj_by_type(topology, HWLOC_OBJ_NUMANODE, it));) {
    NumaNode node;
    node.id = static_cast<int>(it->os_index);
    node.cpus = to_list(it->cpuset);
    node.memory_bytes = it->attr->numanode.local_memory;
    nodes.push_back(std::move(node));
  }
  if (!nodes.empty()) host.numa = std::move(nodes);
}

std::string pci_of(hwloc_obj_t object) {
  for (; object != nullptr; object = object->parent) {
    if (object->type != HWLOC_OBJ_PCI_DEVICE) continue;
    const auto& pci = object->attr->pcidev;
    std::array<char, 32> text;
    snprintf(text.data(), text.size(), "%04x:%02x:%02x.%01x", static_cast<unsigned>(pci.domain),
             static_cast<unsigned>(pci.bus), static_cast<unsigned>(pci.dev),
             static_cast<unsigned>(pci.func));
    return text.data();
  }
  return "";
}

// Merges the domains of GPUs between which hwloc's NVML or ROCm-SMI component reports a bandwidth.
void read_gpu_links(hwloc_topology_t topology, std::vector<Gpu>& gpus) {
  std::map<std::string, int> at;
  for (std::size_t i = 0; i < gpus.size(); ++i) at[gpus[i].pci] = static_cast<int>(i);
  const auto join = [&gpus](int a, int b) {
    const int from = gpus[b].domain;
    const int to = gpus[a].domain >= 0 ? gpus[a].domain : from >= 0 ? from : a;
    for (Gpu& gpu : gpus) {
      if (from >= 0 && gpu.domain == from) gpu.domain = to;
    }
    gpus[a].domain = gpus[b].domain = to;
  };
  for (const char* name : {"NVLinkBandwidth", "XGMIBandwidth"}) {
    hwloc_distances_s* matrix = nullptr;
    unsigned count = 1;
    if (hwloc_distances_get_by_name(topology, name, &count, &matrix, 0) != 0 || count == 0)
      continue;
    for (unsigned i = 0; i < matrix->nbobjs; ++i) {
      for (unsigned k = 0; k < matrix->nbobjs; ++k) {
        const auto a = at.find(pci_of(matrix->objs[i])), b = at.find(pci_of(matrix->objs[k]));
        const bool linked = i != k && matrix->values[i * matrix->nbobjs + k] > 0;
        if (linked && a != at.end() && b != at.end()) join(a->second, b->second);
      }
    }
    hwloc_distances_release(topology, matrix);
  }
}

// Numbers the domains from 0 in the order of the GPUs.
void renumber_domains(std::vector<Gpu>& gpus) {
  std::map<int, int> number;
  for (Gpu& gpu : gpus) {
    if (gpu.domain < 0) continue;
    gpu.domain = number.emplace(gpu.domain, static_cast<int>(number.size())).first->second;
  }
}

// Reads names from the PCI database for GPUs whose driver reported none.
void read_gpu_names(hwloc_topology_t topology, std::vector<Gpu>& gpus) {
  for (hwloc_obj_t it = nullptr; (it = hwloc_get_next_pcidev(topology, it));) {
    const char* device = hwloc_obj_get_info_by_name(it, "PCIDevice");
    const std::string pci = pci_of(it);
    for (Gpu& gpu : gpus) {
      // "NVIDIA 2335": keeps the vendor's name and replaces the number.
      const auto blank = gpu.name.rfind(' ');
      if (gpu.pci != pci || device == nullptr || gpu.name.size() - blank != 5) continue;
      gpu.name = gpu.name.substr(0, blank + 1) + device;
    }
  }
}

int count_cores_in_tree(const std::string& root) {
  std::set<std::string> cores;
  const std::string directory = root + "/devices/system/cpu/";
  for (const int cpu : sysfs::parse_cpulist(sysfs::read_line(directory + "online"))) {
    const std::string number = std::to_string(cpu);
    const std::string siblings =
        sysfs::read_line(directory + "cpu" + number + "/topology/thread_siblings_list");
    cores.insert(siblings.empty() ? number : siblings);
  }
  return static_cast<int>(cores.size());
}

}  // namespace

HostDescription discover_host(const std::string& sysfs_root) {
  const bool live = sysfs_root == "/sys";
  HostDescription host;
  host.sysfs = sysfs_root;
  host.numa = sysfs::discover_numa(sysfs_root);
  host.nics = sysfs::discover_nics(sysfs_root, live);
  host.gpus = sysfs::discover_gpus(sysfs_root, live ? "/proc" : "");
  if (live) {
    std::array<char, 256> name{};
    if (gethostname(name.data(), name.size() - 1) == 0) host.hostname = name.data();
    if (const Hwloc hwloc = load_hwloc(!host.gpus.empty())) {
      read_processors(hwloc.get(), host);
      if (!host.gpus.empty()) {
        read_gpu_names(hwloc.get(), host.gpus);
        read_gpu_links(hwloc.get(), host.gpus);
      }
    }
  } else {
    host.cores = count_cores_in_tree(sysfs_root);
  }
  renumber_domains(host.gpus);
  if (host.numa.size() == 1) {
    // Firmware of single-node hosts often omits the NUMA node of the devices.
    for (Nic& nic : host.nics) {
      if (!nic.pci.empty() && nic.numa_node < 0) nic.numa_node = host.numa[0].id;
    }
    for (Gpu& gpu : host.gpus) {
      if (gpu.numa_node < 0) gpu.numa_node = host.numa[0].id;
    }
  }
  return host;
}

}  // namespace weft
