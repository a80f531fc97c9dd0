// A folder with a host's files, as in sysfs, procfs, debugfs and ethtool, and the tree of a healthy
// host with two ConnectX-7 on RoCE, which tests modify.
#pragma once

#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "perf/validate/facts/read_facts.h"
#include "support/process/temporary_folder.h"
#include "topo/sysfs.h"

namespace weft::testing {

struct TreeFile {
  std::string path, text;
};

class HostTree {
 public:
  explicit HostTree(const std::vector<TreeFile>& files = {}) { write(files); }

  void write(const std::vector<TreeFile>& files) {
    for (const auto& [path, text] : files) {
      const std::filesystem::path file = folder_ / path;
      std::filesystem::create_directories(file.parent_path());
      std::ofstream(file) << text << "\n";
    }
  }
  void remove(const std::string& path) { std::filesystem::remove_all(folder_ / path); }
  // Hides a file or folder, and shows it again.
  void hide(const std::string& path) { rename(path, path + ".hidden"); }
  void show(const std::string& path) {
    remove(path);
    rename(path + ".hidden", path);
  }
  std::string operator/(const std::string& path) const { return folder_ / path; }

  fabric::Sources sources() const {
    fabric::Sources sources;
    sources.sysfs = folder_ / "sys";
    sources.proc = folder_ / "proc";
    sources.debugfs = folder_ / "debug";
    sources.ethtool_folder = folder_ / "ethtool";
    sources.live = false;
    return sources;
  }
  // The RDMA devices of the tree, or its interfaces if there are none.
  std::vector<Nic> rails() const {
    std::vector<Nic> nics = sysfs::discover_nics(folder_ / "sys", false), rdma;
    for (const Nic& nic : nics)
      if (nic.rdma) rdma.push_back(nic);
    return rdma.empty() ? nics : rdma;
  }
  fabric::HostFacts host() const { return fabric::read_host(rails(), sources()); }

 private:
  void rename(const std::string& from, const std::string& to) {
    std::filesystem::rename(folder_ / from, folder_ / to);
  }
  const TemporaryFolder folder_;
};

// Files of port `mlx5_I` with interface `ethI`.
inline std::vector<TreeFile> connectx_port(int i) {
  const std::string n = std::to_string(i);
  const std::string device = "sys/class/infiniband/mlx5_" + n + "/";
  const std::string port = device + "ports/1/";
  const std::string net = "sys/class/net/eth" + n + "/";
  const std::string pci = "0000:3" + n + ":00.0";
  std::vector<TreeFile> files = {
      {device + "fw_ver", "28.41.1000"},
      {device + "board_id", "MT_0000000838"},
      {device + "device/uevent", "DRIVER=mlx5_core\nPCI_SLOT_NAME=" + pci},
      {device + "device/current_link_speed", "32.0 GT/s PCIe"},
      {device + "device/max_link_speed", "32.0 GT/s PCIe"},
      {device + "device/current_link_width", "16"},
      {device + "device/max_link_width", "16"},
      {device + "device/numa_node", n},
      {device + "device/local_cpulist", i == 0 ? "0-7" : "8-15"},
      {device + "device/aer_dev_correctable", "RxErr 1\nBadTLP 2\nTOTAL_ERR_COR 3"},
      {device + "device/aer_dev_nonfatal", "DLP 0\nTOTAL_ERR_NONFATAL 0"},
      {device + "device/aer_dev_fatal", "DLP 0\nTOTAL_ERR_FATAL 0"},
      {port + "state", "4: ACTIVE"},
      {port + "phys_state", "5: LinkUp"},
      {port + "link_layer", "Ethernet"},
      {port + "rate", "400 Gb/sec (4X NDR)"},
      {port + "sm_lid", "0x0"},
      {port + "lid", "0x0"},
      {port + "pkeys/0", "0xffff"},
      {port + "pkeys/1", "0x0000"},
      {port + "gids/0", "fe80:0000:0000:0000:0000:00ff:fe00:000" + n},
      {port + "gids/1", "0000:0000:0000:0000:0000:0000:0000:0000"},
      {port + "gids/3", "0000:0000:0000:0000:0000:ffff:0a00:000" + n},
      {port + "gid_attrs/types/0", "IB/RoCE v1"},
      {port + "gid_attrs/types/3", "RoCE v2"},
      {port + "gid_attrs/ndevs/0", "eth" + n},
      {port + "gid_attrs/ndevs/3", "eth" + n},
      {port + "counters/link_downed", "0"},
      {port + "counters/symbol_error", "0"},
      {port + "counters/port_xmit_discards", "0"},
      {port + "counters/port_rcv_errors", "0"},
      {port + "counters/port_xmit_wait", "100"},
      {port + "hw_counters/out_of_sequence", "7"},
      {port + "hw_counters/local_ack_timeout_err", "0"},
      {port + "hw_counters/np_cnp_sent", "5000000000"},
      {port + "hw_counters/lifespan", "12"},
      {net + "operstate", "up"},
      {net + "carrier", "1"},
      {net + "mtu", "9000"},
      {net + "address", "02:00:00:00:00:0" + n},
      {net + "flags", "0x1003"},
      {net + "speed", "400000"},
      {net + "carrier_changes", "2"},
      {net + "carrier_down_count", "1"},
      {net + "statistics/rx_dropped", "0"},
      {net + "statistics/rx_crc_errors", "0"},
      {net + "qos/trust", "dscp"},
      {"debug/mlx5/" + pci + "/cc_params/rp_ai_rate", "5"},
      {"debug/mlx5/" + pci + "/cc_params/np_cnp_dscp", "48"}};
  for (int p = 0; p < 8; ++p)
    for (const char* role : {"np", "rp"})
      files.push_back(
          {net + "ecn/roce_" + role + "/enable/" + std::to_string(p), p == 3 ? "1" : "0"});
  files.push_back({"ethtool/eth" + n + ".txt", R"(Settings for eth)" + n + R"(:
	Supported ports: [ FIBRE ]
	Supported link modes:   100000baseKR4/Full
	                        800000baseKR8/Full
	Advertised link modes:  100000baseKR4/Full 200000baseCR4/Full
	                        400000baseKR4/Full
	Advertised pause frame use: Symmetric
	Speed: 400000Mb/s
	Duplex: Full
Pause parameters for eth)" + n + R"(:
Autonegotiate:	off
RX:		off
TX:		off

driver: mlx5_core
firmware-version: 28.41.1000 (MT_0000000838)
pfc-cap 8 macsec-bypass off delay 0
prio-pfc 0:off 1:off 2:off 3:on 4:off 5:off 6:off 7:off
dscp-prio 0:0 26:3 48:6
NIC statistics:
     rx_packets: 11
     rx0_packets: 5
     ch3_events: 6
     rx_discards_phy: 0
     rx_crc_errors_phy: 0
     rx_prio3_pause: 17
     tx_pause_storm_error_events: 0
     rx_symbol_err_phy: N/A)"});
  return files;
}

inline std::vector<TreeFile> connectx_host() {
  std::vector<TreeFile> files = {
      {"proc/sys/kernel/hostname", "node7"},
      {"proc/sys/kernel/osrelease", "6.8.0-41-generic"},
      {"proc/self/status", "Name:\tweft\nCpus_allowed_list:\t0-3"},
      {"proc/self/limits",
       "Max locked memory         unlimited            unlimited            bytes"},
      {"proc/sys/net/ipv4/conf/all/arp_ignore", "0"},
      {"proc/sys/net/ipv4/conf/eth0/arp_ignore", "0"},
      {"proc/sys/net/ipv4/conf/eth1/arp_ignore", "0"},
      {"sys/devices/system/node/node0/cpulist", "0-7"},
      {"sys/devices/system/node/node1/cpulist", "8-15"},
      {"sys/devices/system/cpu/cpu0/cpufreq/scaling_governor", "performance"},
      {"sys/kernel/mm/transparent_hugepage/enabled", "always [madvise] never"},
      {"sys/kernel/mm/hugepages/hugepages-2048kB/nr_hugepages", "0"},
      {"sys/module/mlx5_core/version", "24.07-0.6.1"},
      {"sys/module/nvidia_peermem/initstate", "live"}};
  for (int i = 0; i < 2; ++i)
    for (TreeFile& file : connectx_port(i)) files.push_back(std::move(file));
  return files;
}

}  // namespace weft::testing
