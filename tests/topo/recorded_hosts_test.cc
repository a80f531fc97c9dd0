// Selection of rails on recorded hosts. ABOUT, beside each recording, has the right answer.
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <stdlib.h>

#include "support/process/recorded_host.h"
#include "topo/discover.h"

namespace weft {
namespace {

using testing::RecordedHost;

struct RecordedRow {
  const char *host, *rails;
};
void PrintTo(const RecordedRow& row, std::ostream* os) { *os << row.host; }

constexpr RecordedRow kRecordedRows[] = {
    {"arm-cx5-x8-of-x16", "mlx5_0 mlx5_1"},
    {"aws-efa-hwcounters", "rdmap0s31"},
    {"azure-a100-an-vf", "mlx5_0 mlx5_1 mlx5_2 mlx5_3 mlx5_4 mlx5_5 mlx5_6 mlx5_7"},
    {"azure-a100-init-an",
     "mlx5_ib0 mlx5_ib1 mlx5_ib2 mlx5_ib3 mlx5_ib4 mlx5_ib5 mlx5_ib6 mlx5_ib7"},
    {"cx-bond-congested", "mlx5_bond_0"},
    {"gb10-gx10-pcie-x2", "rocep1s0f0 roceP2p1s0f0"},
    {"gb300-xdr-roce-front", "ibp3s0 ibP2p3s0 ibP16p3s0 ibP18p3s0"},
    {"h100", "mlx5_0 mlx5_1 mlx5_4 mlx5_5 mlx5_6 mlx5_7 mlx5_8 mlx5_9"},
    {"h100-ib-bf3bond-ibstat", "mlx5_0 mlx5_1 mlx5_4 mlx5_5 mlx5_6 mlx5_7 mlx5_8 mlx5_9"},
    {"h100-ib-bf3bond-sysfs", "mlx5_0 mlx5_1 mlx5_4 mlx5_5 mlx5_6 mlx5_7 mlx5_8 mlx5_9"},
    {"h100-ib-ipoib-down", "mlx5_0 mlx5_3 mlx5_4 mlx5_5 mlx5_6 mlx5_9 mlx5_10 mlx5_11"},
    {"h100-roce-12nic-healthy", "mlx5_0 mlx5_3 mlx5_4 mlx5_5 mlx5_6 mlx5_9 mlx5_10 mlx5_11"},
    {"h100-roce-two-rails-disabled", "mlx5_0 mlx5_3 mlx5_4 mlx5_5 mlx5_6 mlx5_9 mlx5_10 mlx5_11"},
    {"h20-roce-4bonds", "mlx5_bond_0 mlx5_bond_1 mlx5_bond_2 mlx5_bond_3"},
    {"huawei-hrn3-no-counters", "hrn3_bond_0"},
    {"hwloc-mlx4-fdr-mic", "mlx4_0"},
    {"hwloc-pcidomain32", "ens3"},
    {"hwloc-qib-pci-moved", "qib0"},
    {"hwloc-qib-qdr", "qib0"},
    {"hwloc-vector-engine", "enp96s0f0"},
};

class RecordedHosts : public ::testing::TestWithParam<RecordedRow> {};

TEST_P(RecordedHosts, Rails) {
  const RecordedRow& row = GetParam();
  const RecordedHost host(row.host);
  if (!host.there())
    GTEST_SKIP() << "missing capability: the recorded host " << row.host << " in "
                 << testing::recorded_folder() << " (WEFT_RECORDED)";
  unsetenv("WEFT_RAILS");
  std::vector<std::string> rails;
  for (const Nic& nic : choose_rails(discover_host(host.sys()))) rails.push_back(nic.name);
  EXPECT_EQ(fmt::format("{}", fmt::join(rails, " ")), row.rails);
}

INSTANTIATE_TEST_SUITE_P(, RecordedHosts, ::testing::ValuesIn(kRecordedRows),
                         [](const auto& info) { return testing::case_name(info.param.host); });

}  // namespace
}  // namespace weft
