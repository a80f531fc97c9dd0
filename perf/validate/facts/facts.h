// What the hosts say of themselves: settings and counters of every port, before and after a run.
// Facts are data; no check judges here.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <vector>

#include "perf/validate/facts/counter.h"

namespace weft::fabric {

// A port of a host: one rail. An empty optional says that the source does not exist here.
struct PortFacts {
  int rail = 0;
  std::string device;  // "mlx5_0", "eth0", "rail1"
  std::string netdev;  // the port's network interface; empty: none
  int ib_port = 0;     // of an RDMA device; 0: a plain interface
  bool rdma = false;
  std::optional<std::string> absent;  // why the host cannot use the port as a rail; nothing is read

  std::optional<std::string> state, phys_state, link_layer;  // "ACTIVE", "LinkUp", "InfiniBand"
  std::optional<double> rate_gbps;                           // of the link as trained
  std::optional<double> most_rate_gbps;                      // what the port could do; advertised
  std::optional<int> width_lanes;                            // "4X"
  std::optional<std::string> operstate;
  std::optional<bool> carrier;
  std::optional<int> mtu;         // bytes, of the interface
  std::optional<int> active_mtu;  // bytes, of the RDMA port
  std::optional<std::string> mac, address;
  std::optional<std::string> subnet;  // "10.0.1.0/24", of the interface's first IPv4 address
  std::optional<bool> arp_for_all;    // answers ARP for the addresses of the other rails, too
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
  std::optional<std::string> slot_most_speed;              // of the port above the card
  std::optional<int> slot_most_width;                      // lanes
  std::optional<int> numa_node;                            // of the device
  std::optional<std::string> local_cpus;                   // "0-15"
  std::optional<std::string> pci;                          // "0000:3b:00.0"
  std::optional<std::string> switch_name, switch_port;     // at the other end of the cable, by LLDP
  std::vector<std::pair<std::string, std::string>> settings;  // "FEC", "ACS redirect"
  Readings gauges;  // what stands: "nic.celsius" and its limit "nic.celsius.most"
  std::optional<std::string> qos_trust;    // "pcp", "dscp"
  std::optional<int> pfc_priorities;       // bit p: PFC on priority p
  std::optional<bool> pause_rx, pause_tx;  // global pause
  struct DscpPriority {
    int dscp = 0, priority = 0;
  };
  std::vector<DscpPriority> dscp_map;                              // what `dcb app` shows
  std::optional<int> ecn_np_priorities, ecn_rp_priorities;         // bit p: enabled on priority p
  std::vector<std::pair<std::string, std::string>> cc_parameters;  // DCQCN, by name

  Readings before, after;
};

// Times at which the tester's process stood still, though no other thread had its core.
struct Stops {
  double watched_s = 0;  // the time in which these were counted; 0: nobody counted
  double stopped_s = 0, longest_s = 0;
  int count = 0;
  double throttled_s = 0;  // by a CPU quota; summed over the cores
};

struct HostFacts {
  std::string host;  // host identity of the job: WEFT_HOST_ID, else the host name
  std::string hostname;
  std::string kernel;
  int first_rank = 0;
  int ranks = 1;
  int cores = 0;                               // usable by this process
  std::optional<std::string> allowed_cpus;     // "0-3": that probes may move to (RunsOn)
  std::optional<int> numa_node;                // of these
  std::optional<std::uint64_t> memlock_bytes;  // soft limit; absent: unlimited is UINT64_MAX
  std::optional<std::string> governor;         // cpufreq of the first usable core
  std::optional<std::string> huge_pages;       // "reserved", else transparent: "always", "never"
  std::optional<bool> peer_memory;             // nvidia_peermem (or nv_peer_mem) is loaded
  std::optional<bool> dmabuf;                  // driver and kernel export GPU memory to NICs
  int gpus = 0;
  Readings gpu_state;  // "gpu0.ecc_uncorrected", "xids"
  Stops stops;
  bool names_rails = false;  // WEFT_RAILS names the rails: a device that is down leaves none out
  bool emulated = false;     // this host shares its kernel with another host of the job
  std::vector<PortFacts> ports;  // by rail
};

// Facts of all hosts; hosts and ports in the order of the job's topology.
struct FleetFacts {
  std::vector<HostFacts> hosts;
  double seconds = 0;  // between the readings `before` and `after`
};

// Where facts are read. Tests pass recorded trees.
struct Sources {
  std::string sysfs = "/sys";
  std::string proc = "/proc";
  std::string debugfs = "/sys/kernel/debug";
  bool live = true;  // false: nothing but the trees is asked: no ioctl, no netlink, no getrlimit
  std::vector<std::string> excluded_devices;  // some restricted functions flood the log when read
  std::string
      ethtool_folder;   // not live: INTERFACE.txt files with what `ethtool I`, `ethtool -a I`,
                        // `ethtool -i I`, `ethtool -S I`, `dcb pfc show dev I` and
                        // `dcb -N app show dev I` print, or some of these
  std::string outputs;  // not live: a folder with lldp.json, devlink.json, kmsg, nvlink.txt and
                        // mlxlink.DEVICE.txt, as `lldpcli -f json show neighbors`, `devlink -j
                        // health show`, /dev/kmsg, `nvidia-smi nvlink -s` and `mlxlink -m -c` print
  std::string nvml;     // a library; empty: libnvidia-ml.so.1 of a live host with GPUs
};

nlohmann::ordered_json to_json(const HostFacts& facts);
HostFacts host_facts_from_json(const nlohmann::ordered_json& json);  // throws Error

}  // namespace weft::fabric
