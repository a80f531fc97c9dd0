// Settings and counters of every port, before and after a run, as its host reports them. Facts are
// data; the checks judge them.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <vector>

#include "perf/validate/facts/counter.h"

namespace weft::fabric {

// A port of a host: one rail. An empty optional means that the source does not exist on this host.
struct PortFacts {
  int rail = 0;
  std::string device;  // "mlx5_0", "eth0", "rail1"
  std::string netdev;  // network interface of the port; empty: no interface
  int ib_port = 0;     // port number of an RDMA device; 0: a plain interface
  bool rdma = false;
  std::optional<std::string> absent;  // why the port cannot be a rail; then nothing else is read

  std::optional<std::string> state, phys_state, link_layer;  // "ACTIVE", "LinkUp", "InfiniBand"
  std::optional<double> rate_gbps;                           // rate of the link as trained
  // Rate of the fastest advertised link mode.
  std::optional<double> most_rate_gbps;
  std::optional<int> width_lanes;  // "4X"
  std::optional<std::string> operstate;
  std::optional<bool> carrier;
  std::optional<int> mtu;         // MTU of the interface in bytes
  std::optional<int> active_mtu;  // MTU of the RDMA port in bytes
  std::optional<std::string> mac, address;
  std::optional<std::string> subnet;  // "10.0.1.0/24", of the interface's first IPv4 address
  // The interface also answers ARP for the addresses of other rails.
  std::optional<bool> arp_for_all;
  std::optional<int> sm_lid, lid;
  std::vector<std::string> pkeys;
  struct Gid {
    int index = 0;
    std::string gid, type, netdev;
  };
  std::vector<Gid> gids;
  std::optional<std::string> firmware, board, driver;
  std::optional<std::string> pcie_speed, pcie_most_speed;  // "32.0 GT/s PCIe"
  std::optional<int> pcie_width, pcie_most_width;          // lanes
  // Maximum speed of the slot (upstream PCIe port).
  std::optional<std::string> slot_most_speed;
  std::optional<int> slot_most_width;     // lanes
  std::optional<int> numa_node;           // NUMA node of the device
  std::optional<std::string> local_cpus;  // "0-15"
  std::optional<std::string> pci;         // "0000:3b:00.0"
  // Switch and port at the far end of the cable, by LLDP.
  std::optional<std::string> switch_name, switch_port;
  std::vector<std::pair<std::string, std::string>> settings;  // "FEC", "ACS redirect"
  Readings gauges;  // current values: "nic.celsius" and its limit "nic.celsius.most"
  std::optional<std::string> qos_trust;    // "pcp", "dscp"
  std::optional<int> pfc_priorities;       // bit p: PFC on priority p
  std::optional<bool> pause_rx, pause_tx;  // global pause
  struct DscpPriority {
    int dscp = 0, priority = 0;
  };
  std::vector<DscpPriority> dscp_map;  // as `dcb app` shows it
  // Bit p: ECN is enabled on priority p.
  std::optional<int> ecn_np_priorities, ecn_rp_priorities;
  std::vector<std::pair<std::string, std::string>> cc_parameters;  // DCQCN parameters, by name

  Readings before, after;
};

// Stops of the tester's process that were not caused by other threads on its core.
struct Stops {
  double watched_s = 0;  // duration of the monitoring; 0: not monitored
  double stopped_s = 0, longest_s = 0;
  int count = 0;
  double throttled_s = 0;  // seconds in which a CPU quota stopped threads, summed over cores
};

struct HostFacts {
  std::string host;  // host identity in the job: WEFT_HOST_ID, or else the hostname
  std::string hostname;
  std::string kernel;
  int first_rank = 0;
  int ranks = 1;
  int cores = 0;                               // number of cores that this process may use
  std::optional<std::string> allowed_cpus;     // "0-3": CPUs to which probes may move (RunsOn)
  std::optional<int> numa_node;                // NUMA node of allowed_cpus
  std::optional<std::uint64_t> memlock_bytes;  // soft limit of locked memory; UINT64_MAX: unlimited
  std::optional<std::string> governor;         // cpufreq of the first usable core
  std::optional<std::string> huge_pages;       // "reserved" or transparent: "always", "never"
  std::optional<bool> peer_memory;             // nvidia_peermem (or nv_peer_mem) is loaded
  std::optional<bool> dmabuf;                  // driver and kernel export GPU memory to NICs
  int gpus = 0;
  Readings gpu_state;  // "gpu0.ecc_uncorrected", "xids"
  Stops stops;
  bool names_rails = false;      // WEFT_RAILS names the rails: a device that is down keeps its rail
  bool emulated = false;         // the host shares its kernel with another host of the job
  std::vector<PortFacts> ports;  // ports by rail
};

// Facts of all hosts; hosts and ports in the order of the job's topology.
struct FleetFacts {
  std::vector<HostFacts> hosts;
  double seconds = 0;  // seconds from `before` to `after`
};

// Where facts are read from. Tests pass recorded trees.
struct Sources {
  std::string sysfs = "/sys";
  std::string proc = "/proc";
  std::string debugfs = "/sys/kernel/debug";
  bool live = true;  // false: read only the trees; no ioctl, netlink or getrlimit
  std::vector<std::string> excluded_devices;  // reading restricted functions can flood the log
  std::string ethtool_folder;  // not live: INTERFACE.txt files with output of `ethtool I`, `ethtool
                               // -a I`, `ethtool -i I`, `ethtool -S I`, `dcb pfc show dev I` and
                               // `dcb -N app show dev I`, or some of these
  std::string outputs;  // not live: a folder with lldp.json, devlink.json, kmsg, nvlink.txt and
                        // mlxlink.DEVICE.txt, as from `lldpcli -f json show neighbors`, `devlink -j
                        // health show`, /dev/kmsg, `nvidia-smi nvlink -s` and `mlxlink -m -c`
  std::string nvml;     // path of the library; empty: libnvidia-ml.so.1 on a live host with GPUs
};

nlohmann::ordered_json to_json(const HostFacts& facts);
HostFacts host_facts_from_json(const nlohmann::ordered_json& json);  // throws Error

}  // namespace weft::fabric
