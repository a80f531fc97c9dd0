// The cases that validate runs, and the busbw that measured ports allow.
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
  std::vector<CollectiveResult> timed(1);
  const Players players{{{0, 1}, {2, 3}}, {0, 1, 0, 1}, 2};
  CostModel costs;  // links that only rates limit, and inside a host nothing does
  costs.host = costs.rail = {0, 1e-9, 0};
  costs.step_us = costs.reduce_us_per_byte = 0;
  predict(timed, hosts, samples, players, costs);
  // 2 rails at 4 Gb/s carry algbw 8 for 2 hosts, of which each sends the whole message once.
  EXPECT_NEAR(timed[0].predicted_busbw_gbps, 8 * 1.5, .05 * 8 * 1.5);
  EXPECT_EQ(timed[0].limiting_link, "h rail 1 transmit");
  // Cores that take as long as the rails leave half of it, or a little more.
  costs.reduce_us_per_byte = 8e-3 / 4;
  predict(timed, hosts, samples, players, costs);
  EXPECT_LT(timed[0].predicted_busbw_gbps, .9 * 8 * 1.5);
}

}  // namespace
}  // namespace weft::fabric
