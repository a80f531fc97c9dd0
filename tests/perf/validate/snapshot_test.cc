// Findings of the passive checks on recorded hosts and on made-up trees.
#include "perf/validate/snapshot.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <stdlib.h>

#include <filesystem>
#include <fstream>
#include <set>

#include "perf/validate/facts/tree.h"
#include "support/process/recorded_host.h"

namespace weft::fabric {
namespace {

using testing::HostTree;
using testing::RecordedHost;

// "link-state@mlx5_5 pcie-link@mlx5_0"; a finding of all ports has no port.
std::string found(const std::vector<std::string>& roots) {
  unsetenv("WEFT_RAILS");
  std::set<std::string> places;
  for (const Finding& finding : judge_snapshots(roots, {}).judgement.findings)
    if (finding.severity > Severity::kInfo)
      places.insert(fmt::format("{}{}@{}", finding.unknown ? "unknown " : "", finding.id,
                                finding.where.device));
  return fmt::format("{}", fmt::join(places, " "));
}

struct RecordedFinding {
  const char *host, *found;
};
void PrintTo(const RecordedFinding& r, std::ostream* os) { *os << r.host; }

// ABOUT, beside each recording, describes the host's faults.
constexpr RecordedFinding kRecordedFindings[] = {
    {"arm-cx5-x8-of-x16", "ib-subnet@mlx5_1 link-state@mlx5_0 link-state@mlx5_1 pcie-link@"},
    {"aws-efa-hwcounters", "unknown link-state@rdmap0s31"},
    {"azure-a100-an-vf", ""},
    {"azure-a100-init-an", "ib-subnet@ link-state@"},
    {"cx-bond-congested", ""},
    {"gb10-gx10-pcie-x2", "pcie-link@roceP2p1s0f0"},
    {"gb300-xdr-roce-front", ""},
    {"h100", ""},
    {"h100-ib-bf3bond-ibstat", ""},
    {"h100-ib-bf3bond-sysfs", ""},
    {"h100-ib-ipoib-down", ""},
    {"h100-roce-12nic-healthy", ""},
    {"h100-roce-two-rails-disabled", "link-state@mlx5_11 link-state@mlx5_5"},
    {"h20-roce-4bonds", ""},
    {"huawei-hrn3-no-counters", ""},
    {"hwloc-mlx4-fdr-mic", ""},
    {"hwloc-pcidomain32", ""},
    {"hwloc-qib-pci-moved", ""},
    {"hwloc-qib-qdr", ""},
    {"hwloc-vector-engine", ""},
    {"node-exporter-fixture", ""},
};

class RecordedFindings : public ::testing::TestWithParam<RecordedFinding> {};

TEST_P(RecordedFindings, OfOneTreeAndOfTheSameTreeTwice) {
  const RecordedHost host(GetParam().host);
  if (!host.there())
    GTEST_SKIP() << "missing capability: the recorded host " << GetParam().host << " in "
                 << testing::recorded_folder() << " (WEFT_RECORDED)";
  EXPECT_EQ(found({host.sys()}), GetParam().found);
  EXPECT_EQ(found({host.sys(), host.sys()}), GetParam().found) << "what stands is no finding";
}

INSTANTIATE_TEST_SUITE_P(, RecordedFindings, ::testing::ValuesIn(kRecordedFindings),
                         [](const auto& info) { return testing::case_name(info.param.host); });

// A host of two ports, whose tree tests modify.
class Snapshots : public ::testing::Test {
 protected:
  std::string port(int i, const std::string& file) const {
    return fmt::format("sys/class/infiniband/mlx5_{}/ports/1/{}", i, file);
  }
  std::string device(int i, const std::string& file) const {
    return fmt::format("sys/class/infiniband/mlx5_{}/device/{}", i, file);
  }
  HostTree tree_{testing::connectx_host()};
};

TEST_F(Snapshots, AHealthyHost) { EXPECT_EQ(found({tree_ / "sys"}), ""); }

TEST_F(Snapshots, APortThatIsDownOrInInit) {
  tree_.write({{port(1, "state"), "1: DOWN"}, {port(1, "phys_state"), "2: Polling"}});
  EXPECT_EQ(found({tree_ / "sys"}), "link-state@mlx5_1");
  tree_.write({{port(1, "state"), "2: INIT"}, {port(1, "phys_state"), "5: LinkUp"}});
  EXPECT_EQ(found({tree_ / "sys"}), "link-state@mlx5_1");
}

TEST_F(Snapshots, FewerLanesThanTheOtherPorts) {
  tree_.write(testing::connectx_port(2));
  tree_.remove("ethtool");  // the port's capabilities are unknown
  tree_.write({{port(1, "rate"), "100 Gb/sec (1X NDR)"}});
  EXPECT_EQ(found({tree_ / "sys"}), "link-width@mlx5_1");
  // If all ports agree, the setting is intended.
  for (const int i : {0, 1, 2}) tree_.write({{port(i, "rate"), "100 Gb/sec (1X NDR)"}});
  EXPECT_EQ(found({tree_ / "sys"}), "");
}

TEST_F(Snapshots, ASlotOfFewerLanesOrAnOlderGeneration) {
  tree_.write({{device(1, "current_link_width"), "8"}});
  EXPECT_EQ(found({tree_ / "sys"}), "pcie-link@mlx5_1");
  tree_.write({{device(1, "current_link_width"), "16"}});
  // All slots have the older generation, which suffices for the ports' rate.
  tree_.remove("ethtool");
  for (const int i : {0, 1})
    tree_.write({{device(i, "current_link_speed"), "16.0 GT/s PCIe"},
                 {port(i, "rate"), "200 Gb/sec (4X HDR)"}});
  EXPECT_EQ(found({tree_ / "sys"}), "");
}

// Without a subnet manager, the port has no LID (65535).
TEST_F(Snapshots, AnInfinibandPortInInit) {
  for (const int i : {0, 1})
    tree_.write({{port(i, "link_layer"), "InfiniBand"},
                 {port(i, "lid"), fmt::format("0x{}", i + 4)},
                 {port(i, "sm_lid"), "0x1"}});
  tree_.write({{port(1, "state"), "2: INIT"}, {port(1, "lid"), "0xffff"}});
  EXPECT_EQ(found({tree_ / "sys"}), "ib-subnet@mlx5_1 link-state@mlx5_1");
}

// A RoCE device of another vendor: no counters, and only GIDs of version 2.
TEST_F(Snapshots, ADeviceWithoutCounters) {
  tree_.remove("sys/class/infiniband/mlx5_1");
  tree_.remove("sys/class/net/eth1");
  for (const char* gone : {"counters", "hw_counters", "gids/0", "gid_attrs/types/0", "rate"})
    tree_.remove(port(0, gone));
  EXPECT_EQ(found({tree_ / "sys"}), "");
}

TEST_F(Snapshots, ADeviceThatSaysNoState) {
  for (const char* device : {"mlx5_0", "mlx5_1"})
    tree_.remove(std::string("sys/class/infiniband/") + device);
  tree_.remove("sys/class/net");
  tree_.write({{"sys/class/infiniband/rdmap0s31/ports/1/hw_counters/retrans_pkts", "7"}});
  EXPECT_EQ(found({tree_ / "sys"}), "unknown link-state@rdmap0s31");
}

TEST_F(Snapshots, EntriesThatAreNoDevices) {
  std::filesystem::create_symlink("../../devices/gone", tree_ / "sys/class/infiniband/scif0");
  tree_.write({{"sys/class/net/bonding_masters", "bond0"}});
  EXPECT_EQ(found({tree_ / "sys"}), "");
}

TEST_F(Snapshots, OnlyCountersThatMovedAreFindings) {
  HostTree later(testing::connectx_host());
  for (HostTree* tree : {&tree_, &later}) tree->write({{port(0, "counters/symbol_error"), "12"}});
  EXPECT_EQ(found({tree_ / "sys"}), "");
  EXPECT_EQ(found({tree_ / "sys", later / "sys"}), "");
  later.write({{port(0, "counters/link_downed"), "2"}});
  EXPECT_EQ(found({tree_ / "sys", later / "sys"}), "link-flaps@mlx5_0");
}

TEST(SnapshotErrors, ATreeThatIsNone) {
  try {
    judge_snapshots({"/does/not/exist"}, {});
    ADD_FAILURE() << "a folder that is not there was read";
  } catch (const Error& error) {
    EXPECT_THAT(error.what(), ::testing::HasSubstr("'/does/not/exist' is not a directory"));
  }
}

}  // namespace
}  // namespace weft::fabric
