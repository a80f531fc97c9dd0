// Plans: flows, their schedule, and the plan's description.
#include "perf/validate/probes/plan.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <set>

#include "perf/validate/probes/matchings.h"

namespace weft::fabric {
namespace {

using ::testing::Contains;
using ::testing::IsEmpty;
using ::testing::Not;
using ::testing::SizeIs;

std::vector<FleetHost> fleet(int hosts, int rails, double gbps = 400) {
  std::vector<FleetHost> fleet;
  for (int h = 0; h < hosts; ++h) {
    FleetHost host{"h" + std::to_string(h), false, 4, {}};
    for (int r = 0; r < rails; ++r)
      host.ports.push_back({"eth" + std::to_string(r), "", gbps, 4096});
    fleet.push_back(host);
  }
  return fleet;
}

std::set<std::pair<int, int>> pairs_of(const std::vector<Matching>& matchings) {
  std::set<std::pair<int, int>> pairs;
  for (const Matching& matching : matchings) pairs.insert(matching.begin(), matching.end());
  return pairs;
}

TEST(Matchings, EveryPairMeetsOnceAndNoHostTwiceInARound) {
  for (int n = 0; n <= 33; ++n) {
    const std::vector<Matching> rounds = all_pairs(n);
    std::size_t count = 0;
    for (const Matching& matching : rounds) {
      std::set<int> hosts;
      for (const auto& [a, b] : matching) {
        EXPECT_TRUE(hosts.insert(a).second && hosts.insert(b).second) << n;
        ++count;
      }
    }
    EXPECT_EQ(count, static_cast<std::size_t>(n * (n - 1) / 2));
    EXPECT_EQ(pairs_of(rounds).size(), count);
  }
}

TEST(Matchings, TheXorCoverTouchesEveryHostInLog2Rounds) {
  for (int n = 2; n <= 70; ++n) {
    const std::vector<Matching> rounds = xor_cover(n);
    EXPECT_EQ(rounds.size(), static_cast<std::size_t>(std::ceil(std::log2(n))));
    std::set<int> hosts;
    for (const Matching& matching : rounds)
      for (const auto& [a, b] : matching) {
        EXPECT_LT(b, n);
        hosts.insert({a, b});
      }
    EXPECT_EQ(hosts.size(), static_cast<std::size_t>(n));
  }
}

TEST(Matchings, RandomOnesNeverRepeatAPair) {
  std::mt19937_64 random(7);
  for (int n = 2; n <= 20; ++n) {
    const std::vector<Matching> rounds = random_matchings(n, 5, random);
    std::size_t count = 0;
    for (const Matching& matching : rounds) count += matching.size();
    EXPECT_EQ(rounds.size(), static_cast<std::size_t>(std::min(5, all_pairs_rounds(n))));
    EXPECT_EQ(pairs_of(rounds).size(), count) << n;
  }
}

// Probes whose rounds load a port with one flow per direction.
bool disjoint(Probe probe) {
  return probe != Probe::kIncast && probe != Probe::kVictim && probe != Probe::kAllToAll;
}

TEST(Plan, KeepsItsPromisesForEveryShapeAndBudget) {
  for (const int hosts : {1, 2, 3, 5, 8, 16, 33, 64})
    for (const int rails : {1, 2, 8})
      for (const int most : {0, 1, 2, 7})
        for (const double budget : {1.0, 10.0, 60.0}) {
          SCOPED_TRACE(::testing::Message()
                       << hosts << " x " << rails << ", " << most << " flows, " << budget << " s");
          const Plan plan = plan_rounds(fleet(hosts, rails), most, {.budget_s = budget});
          EXPECT_LE(plan.seconds, budget + 1e-9);
          for (const Round& round : plan.rounds) {
            ASSERT_FALSE(round.flows.empty());
            EXPECT_TRUE(most == 0 || round.flows.size() <= static_cast<std::size_t>(most));
            std::set<Port> sends, receives;
            for (const Flow& flow : round.flows) {
              if (!disjoint(round.probe)) continue;
              EXPECT_TRUE(sends.insert(flow.from).second);
              EXPECT_TRUE(receives.insert(flow.to).second);
              EXPECT_EQ(flow.from.host == flow.to.host, round.probe == Probe::kLoopback);
            }
            if (round.probe != Probe::kRate && round.probe != Probe::kLowLoad) continue;
            for (const Port port : sends)
              EXPECT_FALSE(receives.contains(port)) << "each direction by itself";
          }
        }
}

TEST(Plan, EveryPortSendsAndReceivesAndIdleNetworksComeFirst) {
  for (const int hosts : {3, 8, 21}) {
    const Plan plan = plan_rounds(fleet(hosts, 2), 0, {});
    std::set<Port> sends, receives;
    std::size_t last_latency = 0, first_rate = plan.rounds.size();
    for (std::size_t i = 0; i < plan.rounds.size(); ++i) {
      if (plan.rounds[i].probe == Probe::kLatency) last_latency = i;
      if (plan.rounds[i].probe != Probe::kRate) continue;
      first_rate = std::min(first_rate, i);
      for (const Flow& flow : plan.rounds[i].flows) {
        sends.insert(flow.from);
        receives.insert(flow.to);
      }
    }
    EXPECT_LT(last_latency, first_rate);
    EXPECT_EQ(sends.size(), static_cast<std::size_t>(2 * hosts));
    EXPECT_EQ(receives, sends);
  }
}

TEST(Plan, MeasuresAllPairsOfFewHostsAndOnRequest) {
  EXPECT_EQ(plan_rounds(fleet(8, 2), 0, {}).measured_paths, (std::vector<int>{56, 56}));
  EXPECT_LT(plan_rounds(fleet(40, 1), 0, {}).measured_paths[0], 40 * 39);
  EXPECT_EQ(plan_rounds(fleet(40, 1), 0, {.all_pairs = true}).measured_paths[0], 40 * 39);
}

TEST(Plan, EveryPortIsTheTargetOfAnIncast) {
  for (const int hosts : {3, 4, 5, 8, 10, 17, 64})
    for (const int most : {0, 2, 15}) {
      SCOPED_TRACE(::testing::Message() << hosts << " hosts, " << most << " flows");
      std::map<Port, std::set<Port>> senders;
      for (const Round& round : plan_rounds(fleet(hosts, 2), most, {.budget_s = 600}).rounds) {
        if (round.probe != Probe::kIncast) continue;
        for (const Flow& flow : round.flows) senders[flow.to].insert(flow.from);
      }
      EXPECT_EQ(senders.size(), 2U * static_cast<std::size_t>(hosts));
      for (const auto& [to, from] : senders) EXPECT_GE(from.size(), 2U) << to.host;
    }
}

TEST(Plan, SaysWhatItLeavesOut) {
  const Plan two = plan_rounds(fleet(2, 1), 0, {});
  EXPECT_THAT(two.not_here, Contains(Probe::kIncast)) << "one sender is no incast";
  EXPECT_THAT(two.not_here, Contains(Probe::kCrossRail)) << "one rail";
  EXPECT_THAT(two.left_out, IsEmpty());
  EXPECT_THAT(plan_rounds(fleet(8, 2), 0, {}).left_out, IsEmpty());
  EXPECT_THAT(plan_rounds(fleet(8, 2), 1, {}).not_here, Contains(Probe::kBisection))
      << "one flow at a time";
  const Plan hasty = plan_rounds(fleet(64, 2), 0, {.budget_s = 4});
  EXPECT_THAT(hasty.left_out, Contains(Probe::kEntropy));
  EXPECT_THAT(hasty.left_out, Not(Contains(Probe::kRate)));
  EXPECT_THAT(hasty.not_here, IsEmpty());
  const Plan alone = plan_rounds(fleet(1, 1), 0, {});
  EXPECT_THAT(alone.rounds, IsEmpty());
  EXPECT_THAT(alone.not_here, Contains(Probe::kRate));
  EXPECT_EQ(alone.smallest_loss, 1);
}

// A ping takes a core at each end: among hosts that share two cores, one pair pings at a time.
TEST(Plan, PingsTakeTurnsWhereHostsShareCores) {
  std::vector<FleetHost> hosts = fleet(4, 2);
  for (FleetHost& host : hosts) {
    host.emulated = true;
    host.cores = 2;
  }
  std::set<std::pair<Port, Port>> pairs;
  for (const Round& round : plan_rounds(hosts, 4, {}).rounds) {
    if (round.probe != Probe::kLatency) continue;
    ASSERT_THAT(round.flows, SizeIs(1));
    pairs.insert({round.flows[0].from, round.flows[0].to});
  }
  EXPECT_THAT(pairs, SizeIs(12)) << "every pair of hosts on both rails";
}

TEST(Plan, OnlyWhatWasAskedFor) {
  const Plan plan = plan_rounds(fleet(4, 2), 0, {.only = {Probe::kLatency}});
  ASSERT_FALSE(plan.rounds.empty());
  for (const Round& round : plan.rounds) EXPECT_EQ(round.probe, Probe::kLatency);
  EXPECT_THAT(plan.left_out, IsEmpty());
}

TEST(Plan, ASoakRepeatsRateRounds) {
  const Plan plan = plan_rounds(fleet(4, 1), 0, {.soak_s = 20});
  double seconds = 0;
  for (const Round& round : plan.rounds)
    if (round.seconds == 1) seconds += round.seconds;
  EXPECT_NEAR(seconds, 20, 2);
}

TEST(Plan, TheSameSeedGivesTheSamePlan) {
  const auto flows = [](std::uint64_t seed) {
    std::vector<Port> ports;
    for (const Round& round : plan_rounds(fleet(32, 1), 0, {.seed = seed}).rounds)
      for (const Flow& flow : round.flows) ports.insert(ports.end(), {flow.from, flow.to});
    return ports;
  };
  EXPECT_EQ(flows(3), flows(3));
  EXPECT_NE(flows(3), flows(4));
}

}  // namespace
}  // namespace weft::fabric
