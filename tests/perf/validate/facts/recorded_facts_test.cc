// The recorded tree of an H100 host with ConnectX-7 on InfiniBand, unmodified.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include "perf/validate/checks/registry.h"
#include "perf/validate/facts/read_facts.h"
#include "support/process/read_file.h"
#include "support/process/recorded_host.h"
#include "topo/base/environment.h"
#include "topo/sysfs.h"

namespace weft::fabric {
namespace {

using ::testing::ElementsAre;
using ::testing::Optional;
using weft::testing::RecordedHost;

class FabricRecordedFacts : public ::testing::Test {
 protected:
  void SetUp() override {
    root_ = testing::recorded_folder() + "/h100";
    if (!std::filesystem::exists(root_ + "/class/infiniband"))
      GTEST_SKIP() << "missing capability: a recorded H100 host in " << root_ << " (WEFT_RECORDED)";
    sources_.sysfs = root_;
    sources_.proc = root_ + "/proc";
    sources_.debugfs = root_ + "/debug";
    sources_.live = false;
    rails_ = sysfs::discover_nics(root_, false);
  }
  std::string root_;
  Sources sources_;
  std::vector<Nic> rails_;
};

TEST_F(FabricRecordedFacts, EveryDevice) {
  const HostFacts host = read_host(rails_, sources_);
  std::vector<std::string> names;
  for (const PortFacts& p : host.ports) {
    names.push_back(p.device);
    const bool bond = p.device == "mlx5_bond_0";
    EXPECT_EQ(p.rail, static_cast<int>(names.size()) - 1);
    EXPECT_TRUE(p.rdma) << p.device;
    EXPECT_EQ(p.ib_port, 1) << p.device;
    EXPECT_EQ(p.state, "ACTIVE") << p.device;
    EXPECT_EQ(p.phys_state, "LinkUp") << p.device;
    EXPECT_EQ(p.link_layer, bond ? "Ethernet" : "InfiniBand") << p.device;
    EXPECT_THAT(p.rate_gbps, Optional(bond ? 200.0 : 400.0)) << p.device;
    EXPECT_THAT(p.width_lanes, Optional(bond ? 2 : 4)) << p.device;
    EXPECT_EQ(p.firmware, bond ? "32.38.3056" : "28.41.1000") << p.device;
    EXPECT_EQ(p.board, bond ? "MT_0000000884" : "MT_0000000838") << p.device;
    // Facts that were not recorded are empty.
    EXPECT_FALSE(p.mtu || p.sm_lid || p.lid || p.pci || p.numa_node || p.driver || p.pcie_width)
        << p.device;
    EXPECT_TRUE(p.pkeys.empty() && p.gids.empty() && p.cc_parameters.empty()) << p.device;
  }
  EXPECT_THAT(names, ElementsAre("mlx5_0", "mlx5_1", "mlx5_4", "mlx5_5", "mlx5_6", "mlx5_7",
                                 "mlx5_8", "mlx5_9", "mlx5_bond_0"));
}

// Exactly the files of each port are read.
TEST_F(FabricRecordedFacts, EveryCounterOfEveryPort) {
  const HostFacts host = read_host(rails_, sources_);
  ASSERT_EQ(host.ports.size(), 9u);
  for (const PortFacts& p : host.ports) {
    std::map<std::string, std::string> expected, read;
    const std::string port = root_ + "/class/infiniband/" + p.device + "/ports/1/";
    for (const auto& [folder, prefix] : {std::pair("counters", "ib."), {"hw_counters", "hw."}})
      for (const auto& file : std::filesystem::directory_iterator(port + folder))
        if (const std::string name = file.path().filename(); name != "lifespan")
          expected[prefix + name] = read_file(file.path());
    for (const auto& [name, reading] : read_counters(p, sources_)) {
      EXPECT_EQ(reading.state, ReadingState::kValue) << p.device << " " << name;
      read[name] = std::to_string(reading.value);
    }
    EXPECT_EQ(read, expected) << p.device;
    EXPECT_EQ(read.size(), 46u) << p.device;
  }
}

// In the recording, a link went down at least 255 times and buffers overran at least 15 times:
// further events cannot be counted.
TEST_F(FabricRecordedFacts, CountersAtTheirCeilingAreSaturated) {
  std::vector<std::string> saturated;
  for (const PortFacts& p : read_host(rails_, sources_).ports)
    for (const auto& [name, reading] : read_counters(p, sources_)) {
      const Change change = difference(reading, reading, kind_of_counter(name));
      if (change.state == ChangeState::kSaturated)
        saturated.push_back(p.device + " " + name);
      else
        EXPECT_TRUE(change.state == ChangeState::kKnown && change.change == 0) << name;
    }
  std::vector<std::string> expected;
  for (const Nic& nic : rails_) {
    const std::string counters = root_ + "/class/infiniband/" + nic.name + "/ports/1/counters/";
    for (const auto& [name, ceiling] :
         {std::pair("excessive_buffer_overrun_errors", "15"), {"link_downed", "255"}})
      if (read_file(counters + name) == ceiling) expected.push_back(nic.name + " ib." + name);
  }
  EXPECT_EQ(saturated, expected);
  EXPECT_THAT(saturated, ::testing::Contains(::testing::HasSubstr("ib.link_downed")));
}

// Facts of a recorded host's RDMA ports; no ports if the recording is missing.
HostFacts recorded_host(const RecordedHost& recorded, Sources& sources) {
  sources.sysfs = recorded.sys();
  sources.proc = sources.debugfs = "/nowhere";
  sources.live = false;
  std::vector<Nic> rdma;
  for (const Nic& nic : sysfs::discover_nics(sources.sysfs, false))
    if (nic.rdma) rdma.push_back(nic);
  return read_host(rdma, sources);
}
#define SKIP_UNLESS_THERE(recorded) \
  if (!recorded.there())            \
  GTEST_SKIP() << "missing capability: recorded hosts in " << weft::testing::recorded_folder()

// A NIC without extended counters: its four data counters stand at 2^32 - 1.
TEST(FabricRecordedHosts, CountersOfDataOfAnOldCardAreFull) {
  const RecordedHost recorded("hwloc-qib-qdr");
  SKIP_UNLESS_THERE(recorded);
  Sources sources;
  const HostFacts host = recorded_host(recorded, sources);
  ASSERT_EQ(host.ports.size(), 1u);
  std::vector<std::string> full;
  for (const auto& [name, reading] : read_counters(host.ports[0], sources))
    if (difference(reading, reading, kind_of_counter(name)).state == ChangeState::kSaturated)
      full.push_back(name);
  EXPECT_THAT(full, ElementsAre("ib.port_rcv_data", "ib.port_rcv_packets", "ib.port_xmit_data",
                                "ib.port_xmit_packets"));
}

// The check's text for each port of a recorded host: "mlx5_0: text, expected_text".
std::string said(const std::string& id, const RecordedHost& recorded) {
  Sources sources;
  FleetFacts facts;
  facts.hosts = {recorded_host(recorded, sources)};
  const Check& check = *find_check(id);
  std::string text;
  for (const Finding& f : check.judge(check, {facts, {}, {}, {}, {}}).findings)
    if (!f.unknown) text += f.where.device + ": " + f.text + ", " + f.expected_text + "\n";
  return text;
}

TEST(FabricRecordedHosts, ACardThatTrainedNarrow) {
  const RecordedHost narrow("gb10-gx10-pcie-x2"), healthy("h100-roce-12nic-healthy");
  SKIP_UNLESS_THERE(narrow);
  EXPECT_EQ(said("pcie-link", narrow),
            "roceP2p1s0f0: 32.0 GT/s PCIe x2, 32.0 GT/s PCIe x4\n"
            "roceP2p1s0f1: 32.0 GT/s PCIe x2, 32.0 GT/s PCIe x4\n");
  EXPECT_EQ(said("pcie-link", healthy), "");
}

// Every EFA counter that the checks use exists on the recorded device.
TEST(FabricRecordedHosts, CountersOfEfa) {
  const RecordedHost recorded("aws-efa-hwcounters");
  SKIP_UNLESS_THERE(recorded);
  PortFacts port;
  port.device = "rdmap0s31";
  port.rdma = true;
  port.ib_port = 1;
  Sources sources;
  sources.sysfs = recorded.sys();
  sources.live = false;
  const Readings readings = read_counters(port, sources);
  for (const char* name : {"hw.retrans_pkts", "hw.retrans_timeout_events", "hw.rx_drops",
                           "hw.unresponsive_remote_events", "hw.rx_pkts", "hw.tx_pkts"})
    EXPECT_TRUE(readings.contains(name)) << name;
}

}  // namespace
}  // namespace weft::fabric
