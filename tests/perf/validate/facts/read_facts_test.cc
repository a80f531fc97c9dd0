// Facts from made-up trees: a healthy ConnectX host on RoCE, the same with each fault, incomplete
// trees, invalid readings, and excluded devices.
#include "perf/validate/facts/read_facts.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/inotify.h>
#include <unistd.h>

#include <array>
#include <functional>
#include <nlohmann/json.hpp>
#include <string>

#include "perf/validate/facts/tree.h"

namespace weft::fabric {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::Optional;
using ::testing::Pair;
using weft::testing::connectx_host;
using weft::testing::connectx_port;
using weft::testing::HostTree;

Reading counted(std::uint64_t value) { return {ReadingState::kValue, value}; }
bool same(const Reading& a, const Reading& b) { return a.state == b.state && a.value == b.value; }

// The change of a counter of port 0 while `files` are written.
Change change_during(HostTree& tree, const std::string& counter,
                     const std::vector<weft::testing::TreeFile>& files) {
  const PortFacts port = tree.host().ports.at(0);
  const Readings before = read_counters(port, tree.sources());
  tree.write(files);
  const Readings after = read_counters(port, tree.sources());
  const auto of = [&](const Readings& readings) {
    const auto it = readings.find(counter);
    return it == readings.end() ? Reading{} : it->second;
  };
  return difference(of(before), of(after), kind_of_counter(counter));
}

const std::string kPort = "sys/class/infiniband/mlx5_0/ports/1/";
const std::string kDevice = "sys/class/infiniband/mlx5_0/device/";
const std::string kNet = "sys/class/net/eth0/";

TEST(FabricReadFacts, OfAHealthyHost) {
  const HostTree tree(connectx_host());
  const HostFacts host = tree.host();
  EXPECT_EQ(host.host, "node7");
  EXPECT_EQ(host.hostname, "node7");
  EXPECT_EQ(host.kernel, "6.8.0-41-generic");
  EXPECT_EQ(host.cores, 4);
  EXPECT_THAT(host.allowed_cpus, Optional(std::string("0-3")));
  EXPECT_THAT(host.numa_node, Optional(0));
  EXPECT_THAT(host.memlock_bytes, Optional(UINT64_MAX));
  EXPECT_THAT(host.governor, Optional(std::string("performance")));
  EXPECT_THAT(host.huge_pages, Optional(std::string("madvise")));
  EXPECT_THAT(host.peer_memory, Optional(true));
  EXPECT_FALSE(host.dmabuf.has_value());
  ASSERT_EQ(host.ports.size(), 2u);
  const PortFacts& p = host.ports[1];
  EXPECT_EQ(p.rail, 1);
  EXPECT_EQ(p.device, "mlx5_1");
  EXPECT_EQ(p.netdev, "eth1");
  EXPECT_EQ(p.ib_port, 1);
  EXPECT_TRUE(p.rdma);
  EXPECT_EQ(p.state, "ACTIVE");
  EXPECT_EQ(p.phys_state, "LinkUp");
  EXPECT_EQ(p.link_layer, "Ethernet");
  EXPECT_THAT(p.rate_gbps, Optional(400.0));
  EXPECT_THAT(p.most_rate_gbps, Optional(400.0));  // advertised; 800 is supported only
  EXPECT_THAT(p.width_lanes, Optional(4));
  EXPECT_EQ(p.operstate, "up");
  EXPECT_THAT(p.carrier, Optional(true));
  EXPECT_THAT(p.mtu, Optional(9000));
  EXPECT_EQ(p.mac, "02:00:00:00:00:01");
  EXPECT_THAT(p.arp_for_all, Optional(true));
  EXPECT_THAT(p.pkeys, ElementsAre("0xffff"));
  ASSERT_EQ(p.gids.size(), 2u);
  EXPECT_EQ(p.gids[1].index, 3);
  EXPECT_EQ(p.gids[1].gid, "0000:0000:0000:0000:0000:ffff:0a00:0001");
  EXPECT_EQ(p.gids[1].type, "RoCE v2");
  EXPECT_EQ(p.gids[1].netdev, "eth1");
  EXPECT_EQ(p.firmware, "28.41.1000");
  EXPECT_EQ(p.board, "MT_0000000838");
  EXPECT_EQ(p.driver, "mlx5_core 24.07-0.6.1");
  EXPECT_EQ(p.pcie_speed, "32.0 GT/s PCIe");
  EXPECT_THAT(p.pcie_width, Optional(16));
  EXPECT_THAT(p.pcie_most_width, Optional(16));
  EXPECT_THAT(p.numa_node, Optional(1));
  EXPECT_EQ(p.local_cpus, "8-15");
  EXPECT_EQ(p.pci, "0000:31:00.0");
  EXPECT_EQ(p.qos_trust, "dscp");
  EXPECT_THAT(p.pfc_priorities, Optional(1 << 3));
  EXPECT_THAT(p.pause_rx, Optional(false));
  EXPECT_THAT(p.pause_tx, Optional(false));
  ASSERT_EQ(p.dscp_map.size(), 3u);
  EXPECT_EQ(p.dscp_map[1].dscp, 26);
  EXPECT_EQ(p.dscp_map[1].priority, 3);
  EXPECT_THAT(p.ecn_np_priorities, Optional(1 << 3));
  EXPECT_THAT(p.ecn_rp_priorities, Optional(1 << 3));
  EXPECT_THAT(p.cc_parameters, ElementsAre(Pair("np_cnp_dscp", "48"), Pair("rp_ai_rate", "5")));
  EXPECT_TRUE(p.before.empty());
}

TEST(FabricReadFacts, CountersOfAHealthyPort) {
  const HostTree tree(connectx_host());
  const Readings readings = read_counters(tree.host().ports[0], tree.sources());
  std::map<std::string, std::uint64_t> values;
  std::vector<std::string> others;
  for (const auto& [name, reading] : readings)
    if (reading.state == ReadingState::kValue)
      values[name] = reading.value;
    else
      others.push_back(name);
  const std::map<std::string, std::uint64_t> expected = {{"ib.link_downed", 0},
                                                         {"ib.symbol_error", 0},
                                                         {"ib.port_xmit_discards", 0},
                                                         {"ib.port_rcv_errors", 0},
                                                         {"ib.port_xmit_wait", 100},
                                                         {"hw.out_of_sequence", 7},
                                                         {"hw.local_ack_timeout_err", 0},
                                                         {"hw.np_cnp_sent", 5000000000},
                                                         {"net.rx_dropped", 0},
                                                         {"net.rx_crc_errors", 0},
                                                         {"net.carrier_changes", 2},
                                                         {"net.carrier_down_count", 1},
                                                         {"eth.rx_packets", 11},
                                                         {"eth.rx_discards_phy", 0},
                                                         {"eth.rx_crc_errors_phy", 0},
                                                         {"eth.rx_prio3_pause", 17},
                                                         {"eth.tx_pause_storm_error_events", 0},
                                                         {"pci.RxErr", 1},
                                                         {"pci.BadTLP", 2},
                                                         {"pci.TOTAL_ERR_COR", 3},
                                                         {"pci.nonfatal.DLP", 0},
                                                         {"pci.TOTAL_ERR_NONFATAL", 0},
                                                         {"pci.fatal.DLP", 0},
                                                         {"pci.TOTAL_ERR_FATAL", 0}};
  EXPECT_EQ(values, expected);
  EXPECT_THAT(others, ElementsAre("eth.rx_symbol_err_phy"));
  EXPECT_EQ(readings.at("eth.rx_symbol_err_phy").state, ReadingState::kNotAvailable);
}

struct FaultyFile {
  const char* name;
  std::string path, text;  // an empty text: the file is missing
  std::function<bool(const HostFacts& host, const PortFacts& port)> seen;
};

TEST(FabricReadFacts, HowLongQuotasStoppedTheProcess) {
  HostTree tree;
  EXPECT_EQ(throttled_s(tree.sources()), 0) << "no control groups";
  tree.write(
      {{"proc/self/cgroup", "0::/job/step"},
       {"sys/fs/cgroup/job/cpu.stat", "usage_usec 9\nnr_throttled 4\nthrottled_usec 2500000"},
       {"sys/fs/cgroup/job/step/cpu.stat", "usage_usec 9\nthrottled_usec 1000000"}});
  EXPECT_DOUBLE_EQ(throttled_s(tree.sources()), 2.5) << "the outer group's quota, version 2";
  tree.write({{"proc/self/cgroup", "9:name=systemd:/a\n4:cpu,cpuacct:/b"},
              {"sys/fs/cgroup/cpu,cpuacct/b/cpu.stat", "nr_periods 7\nthrottled_time 300000000"}});
  EXPECT_DOUBLE_EQ(throttled_s(tree.sources()), 0.3) << "version 1";
}

TEST(FabricReadFacts, OfAHostWithEachFault) {
  const std::string limits =
      "Max locked memory         65536                65536                bytes";
  const FaultyFile faults[] = {
      {"port down", kPort + "state", "1: DOWN", [](auto&, auto& p) { return p.state == "DOWN"; }},
      {"polling", kPort + "phys_state", "2: Polling",
       [](auto&, auto& p) { return p.phys_state == "Polling"; }},
      {"lanes lost", kPort + "rate", "200 Gb/sec (2X NDR)",
       [](auto&, auto& p) {
         return p.rate_gbps == 200 && p.width_lanes == 2 && p.most_rate_gbps == 400;
       }},
      {"old form of a rate", kPort + "rate", "2.5 Gb/sec (1X)",
       [](auto&, auto& p) { return p.rate_gbps == 2.5 && p.width_lanes == 1; }},
      {"no rate", kPort + "rate", "unknown",
       [](auto&, auto& p) { return p.rate_gbps == 400 && !p.width_lanes; }},  // by ethtool
      {"interface down", kNet + "operstate", "down",
       [](auto&, auto& p) { return p.operstate == "down"; }},
      {"no carrier", kNet + "carrier", "0", [](auto&, auto& p) { return p.carrier == false; }},
      {"carrier cannot be read", kNet + "carrier", "", [](auto&, auto& p) { return !p.carrier; }},
      {"MTU", kNet + "mtu", "1500", [](auto&, auto& p) { return p.mtu == 1500; }},
      {"trust", kNet + "qos/trust", "pcp", [](auto&, auto& p) { return p.qos_trust == "pcp"; }},
      {"trust with a title", kNet + "qos/trust", "Priority trust state: pcp",
       [](auto&, auto& p) { return p.qos_trust == "pcp"; }},
      {"trust by the map alone", kNet + "qos/trust", "",
       [](auto&, auto& p) { return p.qos_trust == "dscp"; }},
      {"PFC on two priorities", "ethtool/eth0.txt", "prio-pfc 0:on 1:off 2:off 3:on 4:off",
       [](auto&, auto& p) { return p.pfc_priorities == 9; }},
      {"no PFC", "ethtool/eth0.txt", "prio-pfc 0:off 1:off 2:off 3:off",
       [](auto&, auto& p) { return p.pfc_priorities == 0; }},
      {"PFC unknown", "ethtool/eth0.txt", "",
       [](auto&, auto& p) { return !p.pfc_priorities && !p.pause_rx && p.dscp_map.empty(); }},
      {"global pause", "ethtool/eth0.txt",
       "Pause parameters for eth0:\nAutonegotiate:\toff\nRX:\t\ton\nTX:\t\toff",
       [](auto&, auto& p) { return p.pause_rx == true && p.pause_tx == false; }},
      {"NP off", kNet + "ecn/roce_np/enable/3", "0",
       [](auto&, auto& p) { return p.ecn_np_priorities == 0 && p.ecn_rp_priorities == 8; }},
      {"DCQCN parameter", "debug/mlx5/0000:30:00.0/cc_params/rp_ai_rate", "50",
       [](auto&, auto& p) { return p.cc_parameters.at(1).second == "50"; }},
      {"no subnet manager", kPort + "sm_lid", "0x0", [](auto&, auto& p) { return p.sm_lid == 0; }},
      {"subnet manager", kPort + "sm_lid", "0x1f", [](auto&, auto& p) { return p.sm_lid == 31; }},
      {"PCIe width", kDevice + "current_link_width", "8",
       [](auto&, auto& p) { return p.pcie_width == 8 && p.pcie_most_width == 16; }},
      {"PCIe speed", kDevice + "current_link_speed", "16.0 GT/s PCIe",
       [](auto&, auto& p) { return p.pcie_speed == "16.0 GT/s PCIe"; }},
      {"virtual function", kDevice + "current_link_speed", "Unknown",
       [](auto&, auto& p) { return !p.pcie_speed && p.pcie_most_speed; }},
      {"no NUMA node", kDevice + "numa_node", "-1", [](auto&, auto& p) { return !p.numa_node; }},
      {"firmware", "sys/class/infiniband/mlx5_0/fw_ver", "22.36.1010",
       [](auto&, auto& p) { return p.firmware == "22.36.1010"; }},
      {"firmware by ethtool", "sys/class/infiniband/mlx5_0/fw_ver", "",
       [](auto&, auto& p) { return p.firmware == "28.41.1000"; }},
      {"RoCE v1 only", kPort + "gid_attrs/types/3", "IB/RoCE v1",
       [](auto&, auto& p) { return p.gids.at(1).type == "IB/RoCE v1"; }},
      {"ARP for its own address only", "proc/sys/net/ipv4/conf/all/arp_ignore", "1",
       [](auto&, auto& p) { return p.arp_for_all == false; }},
      {"cores of two nodes", "proc/self/status", "Cpus_allowed_list:\t4-11",
       [](auto& h, auto&) { return !h.numa_node && h.cores == 8; }},
      {"memlock", "proc/self/limits", limits,
       [](auto& h, auto&) { return h.memlock_bytes == 65536u; }},
      {"huge pages", "sys/kernel/mm/transparent_hugepage/enabled", "always madvise [never]",
       [](auto& h, auto&) { return h.huge_pages == "never"; }},
      {"reserved huge pages", "sys/kernel/mm/hugepages/hugepages-2048kB/nr_hugepages", "512",
       [](auto& h, auto&) { return h.huge_pages == "reserved"; }},
      {"governor", "sys/devices/system/cpu/cpu0/cpufreq/scaling_governor", "powersave",
       [](auto& h, auto&) { return h.governor == "powersave"; }},
      {"no peer memory", "sys/module/nvidia_peermem", "",
       [](auto& h, auto&) { return h.peer_memory == false; }},
      {"no modules", "sys/module", "",
       [](auto& h, auto& p) { return !h.peer_memory && p.driver == "mlx5_core"; }},
  };
  HostTree tree(connectx_host());
  const auto healthy = to_json(tree.host());
  for (const FaultyFile& fault : faults) {
    tree.hide(fault.path);
    if (!fault.text.empty()) tree.write({{fault.path, fault.text}});
    const HostFacts host = tree.host();
    ASSERT_EQ(host.ports.size(), 2u) << fault.name;
    EXPECT_TRUE(fault.seen(host, host.ports[0])) << fault.name << "\n" << to_json(host).dump(1);
    tree.show(fault.path);
  }
  EXPECT_EQ(to_json(tree.host()), healthy);
}

// In the driver's format: values on which the check "gpudirect" passes and fails.
TEST(FabricReadFacts, DmaBufIsOfTheOpenDriverAndANewKernel) {
  const std::string version = "proc/driver/nvidia/version", release = "proc/sys/kernel/osrelease";
  const std::string open =
      "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  580.95.05  Release Build";
  const std::string closed =
      "NVRM version: NVIDIA UNIX x86_64 Kernel Module  535.183.01  Sun May 12";
  struct Host {
    std::string driver, kernel;
    std::optional<bool> dmabuf;
  };
  for (const Host& h : {Host{open, "6.8.0-41-generic", true},
                        {open, "5.12.0", true},
                        {open, "5.4.0-190-generic", false},
                        {open, "4.18.0-553.el8", false},
                        {closed, "6.8.0-41-generic", false},
                        {"", "6.8.0-41-generic", std::nullopt},
                        {open, "unknown", std::nullopt}}) {
    HostTree tree(connectx_host());
    tree.write({{release, h.kernel}});
    if (!h.driver.empty()) tree.write({{version, h.driver + "\nGCC version:  gcc 13"}});
    EXPECT_EQ(tree.host().dmabuf, h.dmabuf) << h.driver << ", Linux " << h.kernel;
  }
}

TEST(FabricReadFacts, CountersThatSaturateWrapResetOrAreNoValues) {
  HostTree tree(connectx_host());
  const auto change = [&](const std::string& counter, const std::string& path,
                          const std::string& before, const std::string& after) {
    tree.write({{path, before}});
    return change_during(tree, counter, {{path, after}});
  };
  const std::string down = kPort + "counters/link_downed";
  const std::string order = kPort + "hw_counters/out_of_sequence";
  EXPECT_EQ(change("ib.link_downed", down, "255", "255").state, ChangeState::kSaturated);
  EXPECT_EQ(change("ib.link_downed", down, "7", "0").state, ChangeState::kReset);
  EXPECT_EQ(change("ib.link_downed", down, "7", "8").change, 1u);
  EXPECT_EQ(change("hw.out_of_sequence", order, "4294967290", "10").state, ChangeState::kWrapped);
  EXPECT_EQ(change("hw.out_of_sequence", order, "4294967290", "10").change, 16u);
  EXPECT_EQ(change("hw.out_of_sequence", order, "N/A (no PMA)", "1").state, ChangeState::kUnknown);
  EXPECT_EQ(change("hw.out_of_sequence", order, "1", "garbage").state, ChangeState::kUnknown);
  EXPECT_EQ(change("net.rx_crc_errors", kNet + "statistics/rx_crc_errors", "5", "9").change, 4u);
  EXPECT_EQ(change("ib.none", down, "5", "9").state, ChangeState::kUnknown);
}

TEST(FabricReadFacts, ReadingsThatAreNoValues) {
  HostTree tree(connectx_host());
  tree.remove(kPort + "counters/symbol_error");
  tree.remove(kPort + "counters/link_downed");
  tree.write({{kPort + "counters/link_downed/not_a_file", "1"},  // reading it fails
              {kPort + "counters/port_rcv_errors", "N/A (no PMA)"},
              {kPort + "counters/port_xmit_discards", "-1"},
              {kPort + "counters/port_xmit_wait", ""},
              {kNet + "carrier_changes", "99999999999999999999999"}});
  const Readings readings = read_counters(tree.host().ports[0], tree.sources());
  EXPECT_FALSE(readings.contains("ib.symbol_error"));
  EXPECT_EQ(readings.at("ib.link_downed").state, ReadingState::kUnreadable);
  EXPECT_EQ(readings.at("ib.port_rcv_errors").state, ReadingState::kNotAvailable);
  EXPECT_EQ(readings.at("ib.port_xmit_discards").state, ReadingState::kUnreadable);
  EXPECT_EQ(readings.at("ib.port_xmit_wait").state, ReadingState::kUnreadable);
  EXPECT_EQ(readings.at("net.carrier_changes").state, ReadingState::kUnreadable);
}

// Each folder of the tree is missing once; then all of them.
TEST(FabricReadFacts, OfATreeThatLacksHalf) {
  HostTree tree(connectx_host());
  const auto rails = tree.rails();
  for (const char* gone :
       {"sys", "proc", "debug", "ethtool", "sys/class", "sys/class/net", "sys/class/infiniband",
        "sys/module", "sys/devices", "sys/class/infiniband/mlx5_0/ports",
        "sys/class/infiniband/mlx5_0/ports/1/counters", "sys/class/infiniband/mlx5_0/device"}) {
    tree.hide(gone);
    const HostFacts host = read_host(rails, tree.sources());
    ASSERT_EQ(host.ports.size(), 2u) << gone;
    EXPECT_EQ(host.ports[0].device, "mlx5_0") << gone;
    for (const PortFacts& port : host.ports) read_counters(port, tree.sources());
    EXPECT_EQ(to_json(host_facts_from_json(to_json(host))), to_json(host)) << gone;
    tree.show(gone);
  }
  const HostTree empty;
  const HostFacts host = read_host(rails, empty.sources());
  EXPECT_EQ(host.hostname, "");
  EXPECT_EQ(host.cores, 0);
  EXPECT_FALSE(host.memlock_bytes.has_value());
  EXPECT_FALSE(host.ports[0].state.has_value());
  EXPECT_EQ(host.ports[0].ib_port, 0);
  EXPECT_THAT(read_counters(host.ports[0], empty.sources()), IsEmpty());
}

TEST(FabricReadFacts, TheActivePortOfADeviceWithTwo) {
  HostTree tree(connectx_host());
  tree.write({{kPort + "state", "1: DOWN"},
              {"sys/class/infiniband/mlx5_0/ports/2/state", "4: ACTIVE"},
              {"sys/class/infiniband/mlx5_0/ports/2/counters/link_downed", "9"},
              {"sys/class/infiniband/mlx5_0/hw_counters/device_wide", "4"}});
  const PortFacts port = tree.host().ports[0];
  EXPECT_EQ(port.ib_port, 2);
  EXPECT_EQ(port.state, "ACTIVE");
  const Readings readings = read_counters(port, tree.sources());
  EXPECT_TRUE(same(readings.at("ib.link_downed"), counted(9)));
  EXPECT_TRUE(same(readings.at("hw.device_wide"), counted(4)));
}

TEST(FabricReadFacts, OfAPlainInterfaceWithTheTcpOfItsNamespace) {
  HostTree tree({{kNet + "operstate", "up"},
                 {kNet + "flags", "0x1003"},
                 {kNet + "mtu", "1500"},
                 {kNet + "statistics/rx_bytes", "123"},
                 {"proc/net/snmp",
                  "Ip: Forwarding DefaultTTL\nIp: 1 64\n"
                  "Tcp: RtoAlgorithm MaxConn CurrEstab RetransSegs InCsumErrors\nTcp: 1 -1 4 42 7"},
                 {"proc/net/netstat",
                  "TcpExt: TCPTimeouts TCPLostRetransmit\nTcpExt: 3 1\n"
                  "IpExt: InOctets\nIpExt: 5"}});
  const PortFacts port = tree.host().ports.at(0);
  EXPECT_EQ(port.device, "eth0");
  EXPECT_FALSE(port.rdma);
  EXPECT_FALSE(port.rate_gbps.has_value());
  const Readings readings = read_counters(port, tree.sources());
  std::map<std::string, std::uint64_t> values;
  for (const auto& [name, reading] : readings) values[name] = reading.value;
  EXPECT_EQ(values, (std::map<std::string, std::uint64_t>{{"net.rx_bytes", 123},
                                                          {"tcp.InCsumErrors", 7},
                                                          {"tcp.RetransSegs", 42},
                                                          {"tcp.TCPLostRetransmit", 1},
                                                          {"tcp.TCPTimeouts", 3}}));
}

// Watches every folder below `folder` and lists the opened files.
class OpenedFiles {
 public:
  explicit OpenedFiles(const std::vector<std::string>& folders) {
    for (const std::string& folder : folders) {
      watch(folder);
      for (const auto& entry : std::filesystem::recursive_directory_iterator(folder))
        if (entry.is_directory()) watch(entry.path());
    }
    count();  // of this walk
  }
  ~OpenedFiles() { close(notify_); }
  int count() const {
    alignas(inotify_event) std::array<char, 1 << 16> buffer;
    int events = 0;
    for (ssize_t bytes; (bytes = ::read(notify_, buffer.data(), buffer.size())) > 0;)
      for (ssize_t at = 0; at < bytes; ++events)
        at += static_cast<ssize_t>(sizeof(inotify_event) +
                                   reinterpret_cast<const inotify_event*>(buffer.data() + at)->len);
    return events;
  }

 private:
  void watch(const std::string& folder) {
    EXPECT_GE(inotify_add_watch(notify_, folder.c_str(), IN_OPEN | IN_ACCESS), 0) << folder;
  }
  const int notify_ = inotify_init1(IN_NONBLOCK | IN_CLOEXEC);
};

TEST(FabricReadFacts, FilesOfAnExcludedDeviceAreNotOpened) {
  const HostTree tree(connectx_host());
  const auto rails = tree.rails();
  for (const std::string excluded_device : {"mlx5_0", "eth0", "0000:30:00.0"}) {
    Sources sources = tree.sources();
    const OpenedFiles theirs({tree / "sys/class/infiniband/mlx5_0", tree / "sys/class/net/eth0",
                              tree / "debug/mlx5/0000:30:00.0"});
    const OpenedFiles others({tree / "sys/class/infiniband/mlx5_1"});
    sources.excluded_devices = {excluded_device};
    const HostFacts host = read_host(rails, sources);
    for (const PortFacts& port : host.ports) read_counters(port, sources);
    EXPECT_EQ(theirs.count(), 0) << excluded_device;
    EXPECT_GT(others.count(), 30) << excluded_device;
    EXPECT_EQ(host.ports[0].device, "mlx5_0");
    EXPECT_FALSE(host.ports[0].state.has_value());
    EXPECT_EQ(host.ports[1].state, "ACTIVE");
    // Shows that the watch detects opened files.
    sources.excluded_devices = {"mlx5_2"};
    read_host(rails, sources);
    EXPECT_GT(theirs.count(), 30);
  }
}

}  // namespace
}  // namespace weft::fabric
