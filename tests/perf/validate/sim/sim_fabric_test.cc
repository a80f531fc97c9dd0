// The simulated fabric applies its faults to the affected flows, and to no others.
#include "perf/validate/sim/sim_fabric.h"

#include <gtest/gtest.h>

#include <cmath>
#include <nlohmann/json.hpp>

#include "perf/validate/probes/goodput.h"
#include "perf/validate/probes/statistics.h"
#include "perf/validate/sim/fair_share.h"

namespace weft::fabric {
namespace {

SimOptions quiet() {
  SimOptions options;
  options.hosts = 6;
  options.noise = 0;
  options.leaf_hosts = 2;
  return options;
}

double gbps(SimFabric& fabric, std::vector<Flow> flows, std::size_t which = 0) {
  return fabric.run({Probe::kRate, std::move(flows)})[which].gbps();
}

TEST(FairShare, IsMaxMinFair) {
  // Three flows over one link of 9, one of them limited to 1 elsewhere, one by itself.
  EXPECT_EQ(fair_rates({{0}, {0, 1}, {0}}, {100, 100, 100}, {9, 1}),
            (std::vector<double>{4, 1, 4}));
  EXPECT_EQ(fair_rates({{0}, {0}}, {2, 100}, {9}), (std::vector<double>{2, 7}));
  EXPECT_EQ(fair_rates({}, {}, {9}), std::vector<double>{});
}

TEST(Statistics, KnownValues) {
  EXPECT_NEAR(normal_quantile(0.975), 1.959964, 1e-6);
  EXPECT_NEAR(normal_quantile(1e-6), -4.753424, 1e-5);
  EXPECT_NEAR(normal_tail(1.959964), 0.025, 1e-7);
  const Interval tenth = wilson(1, 10, 0.95);  // Newcombe 1998, table of 1 / 10
  EXPECT_NEAR(tenth.low, 0.0179, 1e-4);
  EXPECT_NEAR(tenth.high, 0.4042, 1e-4);
  EXPECT_EQ(wilson(0, 0, 0.95).high, 1);
  std::vector<double> values{5, 1, 4, 2};
  EXPECT_EQ(quantile(values, 0.5), 2);
}

TEST(SimFabric, FormulasOfLoss) {
  EXPECT_NEAR(go_back_n_goodput(1e-3, 122), 0.891, 0.001);
  EXPECT_NEAR(mathis_gbps(1e-4, 1460, 1000), 1.43, 0.01);
}

TEST(SimFabric, APortThatSendsSlowlyReceivesAtFullRate) {
  SimOptions options = quiet();
  options.faults = {{FaultKind::kRate, FaultPlace::kPort, FaultWay::kTransmit, {1, 0}, {}, 0.5}};
  SimFabric fabric(options);
  EXPECT_NEAR(gbps(fabric, {{{1, 0}, {0, 0}}}), 200, 1e-6);
  EXPECT_NEAR(gbps(fabric, {{{0, 0}, {1, 0}}}), 400, 1e-6);
  EXPECT_NEAR(gbps(fabric, {{{1, 1}, {0, 1}}}), 400, 1e-6);
}

TEST(SimFabric, ALeafIsSharedByTheFlowsThatLeaveIt) {
  SimOptions options = quiet();
  options.faults = {{FaultKind::kRate, FaultPlace::kLeaf, FaultWay::kTransmit, {0, 0}, {}, 0.25}};
  SimFabric fabric(options);
  const std::vector<Flow> both{{{0, 0}, {2, 0}}, {{1, 0}, {3, 0}}};
  EXPECT_NEAR(gbps(fabric, both, 0), 100, 1e-6);
  EXPECT_NEAR(gbps(fabric, {both[0]}), 200, 1e-6);
  EXPECT_NEAR(gbps(fabric, {{{0, 0}, {1, 0}}}), 400, 1e-6) << "stays below the leaf";
  EXPECT_NEAR(gbps(fabric, {{{2, 0}, {0, 0}}}), 400, 1e-6) << "comes down";
}

TEST(SimFabric, LossShowsInRetransmitsAndGoodput) {
  SimOptions options = quiet();
  options.faults = {{FaultKind::kLoss, FaultPlace::kRail, FaultWay::kBoth, {0, 1}, {}, 1e-3}};
  SimFabric fabric(options);
  const FlowSample lossy = fabric.run({Probe::kRate, {{{0, 1}, {2, 1}}}})[0];
  const double share =
      static_cast<double>(*lossy.retransmits) / static_cast<double>(*lossy.packets);
  EXPECT_NEAR(share, 1e-3, 1e-4);
  EXPECT_LT(lossy.gbps(), 399);
  const FlowSample clean = fabric.run({Probe::kRate, {{{0, 0}, {2, 0}}}})[0];
  EXPECT_EQ(*clean.retransmits, 0u);
}

TEST(SimFabric, SmallPacketsTellReachLatencyAndMtu) {
  SimOptions options = quiet();
  options.faults = {
      {FaultKind::kDead, FaultPlace::kPort, FaultWay::kTransmit, {1, 0}, {}, 0},
      {FaultKind::kSwapped, FaultPlace::kPort, FaultWay::kBoth, {2, 0}, {2, 1}, 0},
      {FaultKind::kMtu, FaultPlace::kHost, FaultWay::kBoth, {3, 0}, {}, 1400},
      {FaultKind::kLatency, FaultPlace::kPort, FaultWay::kBoth, {4, 0}, {}, 100},
  };
  SimFabric fabric(options);
  const auto reach = [&](Port from, Port to) {
    return fabric.run({Probe::kReach, {{from, to}}})[0];
  };
  EXPECT_FALSE(reach({0, 0}, {1, 0}).reached) << "no answer comes back";
  EXPECT_EQ(reach({0, 0}, {2, 0}).arrived_at, (Port{2, 1}));
  EXPECT_EQ(reach({2, 0}, {0, 0}).arrived_at, (Port{0, 1}));
  EXPECT_EQ(reach({0, 0}, {4, 0}).arrived_at, (Port{4, 0}));
  EXPECT_EQ(fabric.run({Probe::kPathMtu, {{{0, 1}, {3, 1}}}})[0].passed_mtu, 1400);
  const double added = fabric.run({Probe::kLatency, {{{4, 0}, {5, 0}}}})[0].latency->p50_us -
                       fabric.run({Probe::kLatency, {{{4, 1}, {5, 1}}}})[0].latency->p50_us;
  EXPECT_NEAR(added, 100, 1e-6);
}

TEST(SimFabric, TimeIsVirtualAndSeedsRepeat) {
  SimOptions options = quiet();
  options.noise = 0.02;
  SimFabric one(options), same(options);
  EXPECT_EQ(gbps(one, {{{0, 0}, {1, 0}}}), gbps(same, {{{0, 0}, {1, 0}}}));
  EXPECT_DOUBLE_EQ(one.now_s(), 0.3 + options.round_cost_s);
  options.seed = 2;
  SimFabric other(options);
  EXPECT_NE(gbps(other, {{{0, 0}, {1, 0}}}), gbps(one, {{{0, 0}, {1, 0}}}));
}

TEST(FlowSample, AveragesWindowsAndWritesUnits) {
  FlowSample sample;
  sample.bytes = 1'000'000'000;
  sample.seconds = 1;
  EXPECT_DOUBLE_EQ(sample.gbps(), 8);
  EXPECT_DOUBLE_EQ(sample.lowest_gbps(), 8);
  sample.window_gbps = {1, 2, 6};
  EXPECT_DOUBLE_EQ(sample.gbps(), 3);
  EXPECT_DOUBLE_EQ(sample.lowest_gbps(), 1);
  sample.flow = {{1, 0}, {2, 0}};
  nlohmann::ordered_json json = to_json(sample);
  EXPECT_EQ(json["from"]["host"], 1);
  EXPECT_EQ(json["duration_s"], 1);
  EXPECT_FALSE(json.contains("retransmits")) << "not known is not 0";
  sample.retransmits = 0;
  EXPECT_EQ(to_json(sample)["retransmits"], 0);
  EXPECT_STREQ(name(Probe::kLowLoad), "low_load");
}

}  // namespace
}  // namespace weft::fabric
