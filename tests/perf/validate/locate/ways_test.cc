// Links that carry only some flows, in a fabric with much contention: only looks at single flows
// show which ones lose packets or are slow, and what they share.
#include "perf/validate/locate/ways.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "tests/perf/validate/locate/looks.h"

namespace weft::fabric {
namespace {

using ::testing::IsEmpty;
using ::testing::SizeIs;

constexpr int kHosts = 16, kLeaf = 4;  // hosts 0 to 3 are behind one leaf

// Flows on the second of the leaf's four uplinks.
bool takes_the_uplink(const Flow& flow) {
  return flow.from.host < kLeaf && flow.to.host >= kLeaf && flow.label % 4 == 1;
}
// One flow of seven contends with another one in rounds of several.
bool meets(const Flow& flow) { return flow.label % 7 == 0; }

// Looks at all flows, then at bad ones alone, until the paths are known.
Samples looked_alone(const Share& share, const Lost& lost) {
  const auto fleet = fleet_of(kHosts);
  Samples samples = looks(kHosts, 20, [&](double at_s, const Flow& flow) {
    return share(at_s, flow) * (meets(flow) ? 0.5 : 1);
  });
  lose(lost, samples);
  for (int more = 0; more < 1000; ++more) {
    auto ways = slow_ways(fleet, samples, {}, Probe::kRate);
    std::erase_if(ways, [](const Way& way) { return way.sure || way.enough || way.quiet; });
    const auto round = look_alone(ways, samples, 0);
    if (!round) break;
    for (const Flow& flow : round->flows) {
      FlowSample& sample = add_look(samples, flow, 0);
      sample.window_gbps.assign(9, 100 * share(samples.rounds.back().at_s, flow));
      lose(lost, samples, sample);
      samples.rounds.back().at_s += 0.5;
    }
  }
  return samples;
}

std::vector<int> hosts_of(const Cause& cause) {
  std::vector<int> hosts;
  for (const Port port : cause.ports) hosts.push_back(port.host);
  return hosts;
}

TEST(Ways, AnUplinkThatLosesPacketsIsTheSwitchOfItsLeaf) {
  const Samples samples =
      looked_alone([](double, const Flow&) { return 1; },
                   [](double, const Flow& flow) { return takes_the_uplink(flow) ? 0.05 : 0; });
  for (const Way& way : slow_ways(fleet_of(kHosts), samples, {}, Probe::kRate))
    EXPECT_TRUE(!way.sure || (way.lossy && takes_the_uplink(way.flow))) << way.flow.label;
  const auto causes = causes_of_ways(fleet_of(kHosts), samples, {});
  ASSERT_THAT(causes, SizeIs(1));
  EXPECT_EQ(causes[0].kind, CauseKind::kLoss);
  EXPECT_EQ(causes[0].place, CausePlace::kGroup);
  EXPECT_THAT(hosts_of(causes[0]), ::testing::ElementsAre(0, 1, 2, 3));
  EXPECT_NEAR(causes[0].value, 0.05, 1e-3);
  EXPECT_TRUE(causes[0].of_flows);
}

TEST(Ways, AnUplinkThatIsSlowIsTheSwitchOfItsLeaf) {
  const Samples samples =
      looked_alone([](double, const Flow& flow) { return takes_the_uplink(flow) ? 0.1 : 1; },
                   [](double, const Flow&) { return 0; });
  const auto causes = causes_of_ways(fleet_of(kHosts), samples, {});
  ASSERT_THAT(causes, SizeIs(1));
  EXPECT_EQ(causes[0].kind, CauseKind::kUnstable);
  EXPECT_EQ(causes[0].place, CausePlace::kGroup);
  EXPECT_THAT(hosts_of(causes[0]), ::testing::ElementsAre(0, 1, 2, 3));
}

TEST(Ways, AnEndThatLosesPacketsOfNearlyAllFlowsIsNoLinkOfMany) {
  const Samples samples =
      looked_alone([](double, const Flow&) { return 1; },
                   [](double, const Flow& flow) { return flow.from.host == 1 ? 0.05 : 0; });
  EXPECT_THAT(causes_of_ways(fleet_of(kHosts), samples, {}), IsEmpty());
}

TEST(Ways, FlowsThatMeetAreNoSlowWays) {
  const Samples samples =
      looked_alone([](double, const Flow&) { return 1; }, [](double, const Flow&) { return 0; });
  EXPECT_THAT(causes_of_ways(fleet_of(kHosts), samples, {}), IsEmpty());
}

TEST(Ways, LooksThatWaitedForACoreAreNotRepeatedForEver) {
  Samples samples =
      looks(kHosts, 20, [](double, const Flow& flow) { return meets(flow) ? 0.5 : 1; });
  const Flow slow = std::ranges::find_if(samples.flows, [](const FlowSample& sample) {
                      return meets(sample.flow);
                    })->flow;
  const auto is_open = [&] {
    return std::ranges::any_of(
        slow_ways(fleet_of(kHosts), samples, {}, Probe::kRate),
        [&](const Way& way) { return way.flow.label == slow.label && !way.enough && !way.sure; });
  };
  EXPECT_TRUE(is_open());
  for (int repeat = 0; repeat < 4; ++repeat) add_look(samples, slow, 50).receiver_starved = 0.8;
  EXPECT_FALSE(is_open());
}

}  // namespace
}  // namespace weft::fabric
