// Collects the facts of a host. Reads the host's own facts; the other files of this folder read the
// ports.
#include "perf/validate/facts/read_facts.h"

#include <cstdio>
#include <filesystem>
#include <limits>
#include <sstream>
#include <utility>

#include "perf/validate/facts/sources.h"
#include "topo/base/environment.h"
#include "topo/base/thread.h"
#include "topo/sysfs.h"

namespace weft::fabric {
namespace {

// Returns the soft limit in "Max locked memory 65536 65536 bytes".
std::optional<std::uint64_t> memlock_of(const std::string& proc) {
  std::istringstream words(sysfs::read_field(proc + "/self/limits", "Max locked memory"));
  std::string soft;
  if (!(words >> soft)) return std::nullopt;
  if (soft == "unlimited") return std::numeric_limits<std::uint64_t>::max();
  const Reading limit = reading_from(soft);
  if (limit.state != ReadingState::kValue) return std::nullopt;
  return limit.value;
}

// 2 MiB pages: "reserved" if any page is, or else the bracketed word of "always [madvise] never".
std::optional<std::string> huge_pages_of(const std::string& sysfs_root) {
  const std::string mm = sysfs_root + "/kernel/mm/";
  if (whole_of(mm + "hugepages/hugepages-2048kB/nr_hugepages").value_or(0) > 0) return "reserved";
  const std::string modes = sysfs::read_line(mm + "transparent_hugepage/enabled");
  const auto begin = modes.find('['), end = modes.find(']');
  if (begin == std::string::npos || end == std::string::npos) return std::nullopt;
  return modes.substr(begin + 1, end - begin - 1);
}

std::optional<bool> peer_memory_of(const std::string& sysfs_root) {
  std::error_code error;
  const std::string modules = sysfs_root + "/module/";
  if (!std::filesystem::exists(modules, error)) return std::nullopt;
  return std::filesystem::exists(modules + "nvidia_peermem", error) ||
         std::filesystem::exists(modules + "nv_peer_mem", error);
}

// Returns whether NICs can register GPU memory as dma-buf: needs NVIDIA's open kernel modules and,
// for ibv_reg_dmabuf_mr(), Linux 5.12. Like CU_DEVICE_ATTRIBUTE_DMA_BUF_SUPPORTED, but without a
// CUDA context. nullopt without the driver.
std::optional<bool> dmabuf_of(const std::string& proc, const std::string& kernel) {
  const std::string driver = sysfs::read_field(proc + "/driver/nvidia/version", "NVRM version:");
  if (driver.empty()) return std::nullopt;
  int major = 0, minor = 0;
  if (std::sscanf(kernel.c_str(), "%d.%d", &major, &minor) != 2) return std::nullopt;
  return driver.find("Open Kernel Module") != std::string::npos &&
         std::pair(major, minor) >= std::pair(5, 12);
}

void read_cores(HostFacts& host, const Sources& sources) {
  std::string allowed = sysfs::read_field(sources.proc + "/self/status", "Cpus_allowed_list:");
  const std::vector<int> cpus = sysfs::parse_cpulist(allowed);
  if (cpus.empty()) return;
  host.cores = static_cast<int>(cpus.size());
  if (sources.live) {  // probes run next to their ports if the cpuset allows it (RunsOn)
    const RunsOn anywhere(
        sysfs::parse_cpulist(sysfs::read_line(sources.sysfs + "/devices/system/cpu/online")));
    allowed = sysfs::read_field(sources.proc + "/thread-self/status", "Cpus_allowed_list:");
  }
  host.allowed_cpus = allowed;
  const int node = sysfs::numa_node_of(sysfs::discover_numa(sources.sysfs), allowed);
  if (node >= 0) host.numa_node = node;
  host.governor = line_of(sources.sysfs + "/devices/system/cpu/cpu" + std::to_string(cpus.front()) +
                          "/cpufreq/scaling_governor");
}

PortFacts read_port(const Nic& nic, int rail, const Sources& sources) {
  PortFacts port;
  port.rail = rail;
  port.device = nic.name;
  port.netdev = nic.netdev;
  port.rdma = nic.rdma;
  if (!nic.aside.empty()) {
    port.absent = nic.aside;
    return port;
  }
  if (!nic.pci.empty()) port.pci = nic.pci;
  if (!nic.address.empty()) port.address = nic.address;
  // For a plain interface, the topology has already dropped made-up rates of the kernel.
  if (!nic.rdma && nic.rate_gbps > 0) port.rate_gbps = nic.rate_gbps;
  if (excluded(port, sources)) return port;
  read_net(port, sources);
  read_pci(port, sources);
  read_card(port, sources);
  read_ib(port, sources);
  read_ethtool(port, sources);
  read_health(port, sources);
  read_dcb(port, sources);
  read_roce(port, sources);
  return port;
}

}  // namespace

HostFacts read_host(std::span<const Nic> rails, const Sources& sources) {
  HostFacts host;
  host.hostname = sysfs::read_line(sources.proc + "/sys/kernel/hostname");
  host.kernel = sysfs::read_line(sources.proc + "/sys/kernel/osrelease");
  if (sources.live) host.host = environment("WEFT_HOST_ID");
  if (host.host.empty()) host.host = host.hostname;
  read_cores(host, sources);
  host.memlock_bytes = memlock_of(sources.proc);
  host.huge_pages = huge_pages_of(sources.sysfs);
  host.peer_memory = peer_memory_of(sources.sysfs);
  host.dmabuf = dmabuf_of(sources.proc, host.kernel);
  host.gpus = static_cast<int>(sysfs::discover_gpus(sources.sysfs, sources.proc).size());
  for (const Nic& nic : rails)
    host.ports.push_back(read_port(nic, static_cast<int>(host.ports.size()), sources));
  read_neighbours(host.ports, sources);
  read_gpus(host, sources);
  read_nvlinks(host, sources);
  return host;
}

Readings read_counters(const PortFacts& port, const Sources& sources) {
  Readings readings;
  if (excluded(port, sources) || port.absent) return readings;
  ib_counters(port, sources, readings);
  net_counters(port, sources, readings);
  ethtool_counters(port, sources, readings);
  pci_counters(port, sources, readings);
  health_counters(port, sources, readings);
  if (!port.rdma) tcp_counters(sources, readings);
  return readings;
}

}  // namespace weft::fabric
