#include <gtest/gtest.h>

#include "tests/perf/validate/report/example_report.h"

namespace weft::fabric {
namespace {

// 1,024 GPUs on 128 hosts.
Report large() {
  Report report;
  for (int h = 0; h < 128; ++h) report.hosts.push_back({example_host(h), false, 16, {}});
  return report;
}

Finding half_rate() {
  return port_finding("port-rate", "h3", 1, Direction::kTransmit, 200, 400, Unit::kGbps);
}

// Source: 1024 GPUs at 2.50 $/h with 30 % communication: one link at half rate costs up to 590 $/h.
TEST(ReportCost, OneLinkAtHalfRate) {
  const Cost cost = cost_of(half_rate(), large());
  EXPECT_DOUBLE_EQ(cost.slower_step, 0.3);
  EXPECT_NEAR(cost.usd_per_day / 24, 590, 1);
  EXPECT_NEAR(cost.gpu_hours_per_day, 24 * 1024 * (1 - 1 / 1.3), 1e-6);
  EXPECT_NEAR(cost.kwh_per_day, cost.gpu_hours_per_day * 0.7, 1e-6);
  EXPECT_FALSE(cost.stops);
}

TEST(ReportCost, ThePolicysPricesCount) {
  Report report = large();
  report.policy.cost = {{"gpu_hour_usd", 1},
                        {"gpus_per_host", 4},
                        {"gpu_watts", 1000},
                        {"kwh_usd", 0.5},
                        {"communication_share", 1}};
  const Cost cost = cost_of(half_rate(), report);
  EXPECT_DOUBLE_EQ(cost.slower_step, 1);
  EXPECT_DOUBLE_EQ(cost.gpu_hours_per_day, 512 * 24 / 2.0);
  EXPECT_DOUBLE_EQ(cost.usd_per_day, cost.gpu_hours_per_day * 1.5);
}

TEST(ReportCost, TheHostsSayHowManyGpusThereAre) {
  Report report = healthy_report();  // 4 hosts
  for (HostFacts& host : report.facts.hosts) host.gpus = 2;
  EXPECT_NEAR(cost_of(half_rate(), report).gpu_hours_per_day, 24 * 8 * (1 - 1 / 1.3), 1e-6);
}

// Go-back-N with a window of 122 packets: 99 % at 1e-4, 89 % at 1e-3, 45 % at 1e-2.
TEST(ReportCost, LossCostsWhatGoBackNLoses) {
  for (const auto& [loss, goodput] : {std::pair(1e-4, 0.99), {1e-3, 0.89}, {1e-2, 0.45}}) {
    const Finding f = port_finding("loss", "h1", 0, Direction::kReceive, loss, 0, Unit::kPerPacket);
    EXPECT_NEAR(cost_of(f, large()).slower_step, 0.3 * (1 / goodput - 1), 0.012) << loss;
  }
}

TEST(ReportCost, AFatalFaultStopsTheJob) {
  Finding f = port_finding("link-state", "h1", 0, Direction::kBoth, 0, 0, Unit::kText);
  f.severity = Severity::kFatal;
  const Cost cost = cost_of(f, large());
  EXPECT_TRUE(cost.stops);
  EXPECT_DOUBLE_EQ(cost.gpu_hours_per_day, 24 * 1024);
  Finding degraded = half_rate();
  degraded.severity = Severity::kFatal;  // a link trained at half its rate still works
  EXPECT_FALSE(cost_of(degraded, large()).stops);
}

TEST(ReportCost, WhatSaysNothingOfSpeedCostsNothing) {
  const Finding firmware = port_finding("firmware", "h1", 0, Direction::kBoth, 0, 0, Unit::kText);
  Finding unknown = half_rate();
  unknown.unknown = true;
  const Finding faster =
      port_finding("port-rate", "h1", 0, Direction::kBoth, 400, 392, Unit::kGbps);
  for (const Finding& f : {firmware, unknown, faster}) {
    const Cost cost = cost_of(f, large());
    EXPECT_FALSE(cost.stops);
    EXPECT_EQ(cost.slower_step, 0);
    EXPECT_EQ(cost.usd_per_day, 0);
  }
}

}  // namespace
}  // namespace weft::fabric
