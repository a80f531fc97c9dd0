// The collective cases of validate, and the busbw expected from measured ports.
#include "perf/validate/collective_checks.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <set>

namespace weft::fabric {
namespace {

TEST(ValidationCases, CoverTypesOperatorsAndBothPlaces) {
  std::set<std::pair<DType, RedOp>> seen;
  std::set<bool> places;
  for (const Case& c : validation_cases(Collective::kAllReduce, 4)) {
    seen.insert({c.type, c.op});
    places.insert(c.in_place);
  }
  std::size_t combinations = 0;
  for (DType type : kAllDTypes)
    for (RedOp op : kAllRedOps) combinations += defined(op, type);
  EXPECT_EQ(seen.size(), combinations);
  EXPECT_EQ(places.size(), 2u);
  std::set<Rank> roots;
  for (const Case& c : validation_cases(Collective::kBroadcast, 4)) roots.insert(c.root);
  EXPECT_EQ(roots, (std::set<Rank>{0, 3}));
}

TEST(ValidationCases, TakeNoMoreMemoryInALargeJob) {
  for (const Collective collective : {Collective::kAllToAll, Collective::kAllReduce})
    for (const int ranks : {8, 4096, 100'000}) {
      std::size_t most = 0;
      for (const Case& c : validation_cases(collective, ranks)) {
        EXPECT_GT(c.count, 0u);
        const std::size_t blocks = collective == Collective::kAllToAll ? ranks : 1;
        most = std::max(most, c.count * size_of(c.type) * blocks);
      }
      EXPECT_LE(most, std::size_t{16} << 20) << ranks;
      EXPECT_GT(most, 100'000u) << ranks;
    }
}

TEST(Collectives, TheSlowestPortLimitsWhatTheyCanReach) {
  const std::vector<FleetHost> hosts(2, FleetHost{"h", false, 1, {{}, {}}});
  Samples samples;
  samples.rounds.push_back({});
  for (const double gbps : {10.0, 4.0}) {
    FlowSample s;
    s.flow = {{0, gbps < 5 ? 1 : 0}, {1, 0}};
    s.window_gbps = {gbps};
    samples.flows.push_back(s);
  }
  const Players players{{{0, 1}, {2, 3}}, {0, 1, 0, 1}};
  CostModel costs;  // only rates limit links, and nothing limits hosts
  costs.host = costs.rail = {0, 1e-9, 0};
  costs.step_us = costs.reduce_us_per_byte = 0;
  CollectiveResult expected = expected_all_reduce(hosts, samples, players, costs);
  // 2 rails at 4 Gb/s give algbw 8 for 2 hosts: each host sends the whole message once.
  EXPECT_NEAR(expected.predicted_busbw_gbps, 8 * 1.5, .05 * 8 * 1.5);
  EXPECT_EQ(expected.limiting_link, "h rail 1 transmit");
  EXPECT_TRUE(expected.held_by_links());
  EXPECT_EQ(expected.timed_bytes, 4u << 20);
  // Cores that take as long as the rails leave half of it or slightly more.
  costs.reduce_us_per_byte = 8e-3 / 4;
  expected = expected_all_reduce(hosts, samples, players, costs);
  EXPECT_LT(expected.predicted_busbw_gbps, .9 * 8 * 1.5);
}

CollectiveResult expected_at(int hosts, int rails, double gbps) {
  const std::vector<FleetHost> fleet(
      static_cast<std::size_t>(hosts),
      FleetHost{"h", false, 64, std::vector<PortInfo>(static_cast<std::size_t>(rails))});
  Samples samples;
  samples.rounds.push_back({});
  FlowSample sample;
  sample.flow = {{0, 0}, {1, 0}};
  sample.window_gbps = {gbps};
  samples.flows.push_back(sample);
  Players players;
  for (int h = 0; h < hosts; ++h) {
    players.hosts.emplace_back();
    for (int r = 0; r < rails; ++r) {
      players.hosts.back().push_back(static_cast<Rank>(players.rail.size()));
      players.rail.push_back(r);
    }
  }
  return expected_all_reduce(fleet, samples, players, CostModel());
}

TEST(Collectives, OfAFastFleetAreHeldUpByLatenciesAndCoresAndNotByLinks) {
  const CollectiveResult fast = expected_at(512, 8, 400);
  EXPECT_EQ(fast.timed_bytes, 4u << 20) << "none of the lengths reaches the links";
  EXPECT_FALSE(fast.held_by_links());
  EXPECT_GT(fast.link_busbw_gbps, 0.8 * 8 * 400);
  EXPECT_LT(fast.predicted_busbw_gbps, 0.5 * fast.link_busbw_gbps);
}

TEST(Collectives, OfASlowFleetAreHeldUpByLinks) {
  const CollectiveResult slow = expected_at(2, 1, 1);
  EXPECT_TRUE(slow.held_by_links());
  EXPECT_NEAR(slow.predicted_busbw_gbps, 1, 0.2);
}

}  // namespace
}  // namespace weft::fabric
