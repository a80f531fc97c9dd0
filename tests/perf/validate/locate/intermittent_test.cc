// Intermittent faults, and faults of some flows: reported at their place, as their kind, and with
// the promised power.
#include "perf/validate/locate/intermittent.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <map>
#include <random>
#include <utility>

#include "perf/validate/locate/locate.h"
#include "perf/validate/locate/power.h"
#include "perf/validate/locate/ways.h"
#include "tests/perf/validate/locate/looks.h"

namespace weft::fabric {
namespace {

using ::testing::IsEmpty;
using ::testing::Not;
using ::testing::SizeIs;

bool in_spell(double at_s, double spell_s, double period_s) {
  return std::fmod(at_s, period_s) < spell_s;
}

TEST(Intermittent, APortThatIsSlowAtTimesIsNamedAndNotItsPartners) {
  const auto fleet = fleet_of(8);
  const Samples samples = looks(8, 80, [](double at_s, const Flow& flow) {
    return flow.from.host == 3 && in_spell(at_s, 1, 3.3) ? 0.4 : 1;
  });
  const auto causes = locate(fleet, samples, {});
  ASSERT_THAT(causes, SizeIs(1));
  const Cause& cause = causes[0];
  EXPECT_EQ(cause.kind, CauseKind::kUnstable);
  EXPECT_EQ(cause.place, CausePlace::kTransmit);
  EXPECT_EQ(cause.port.host, 3);
  EXPECT_NEAR(cause.value, 40, 2);
  EXPECT_NEAR(cause.expected, 100, 2);
  EXPECT_LE(cause.share_low, 1 / 3.3);
  EXPECT_GE(cause.share_high, 1 / 3.3);
  EXPECT_GT(cause.confidence, 0.99);
  EXPECT_NEAR(cause.period_s, 3.3, 1.5);
  EXPECT_NEAR(cause.spell_s, 1, 0.6);
}

TEST(Intermittent, BothDirectionsAreThePort) {
  const Samples samples = looks(8, 80, [](double at_s, const Flow& flow) {
    return (flow.from.host == 3 || flow.to.host == 3) && in_spell(at_s, 0.7, 3.7) ? 0.2 : 1;
  });
  const auto causes = locate(fleet_of(8), samples, {});
  ASSERT_THAT(causes, SizeIs(1));
  EXPECT_EQ(causes[0].place, CausePlace::kPort);
  EXPECT_EQ(causes[0].port.host, 3);
}

TEST(Intermittent, OneBadLookInTheOtherDirectionMakesNoPort) {
  bool once = false;
  const Samples samples = looks(8, 80, [&](double at_s, const Flow& flow) {
    if (flow.to.host == 3 && at_s > 20) return std::exchange(once, true) ? 1 : 0.2;
    return flow.from.host == 3 && in_spell(at_s, 0.7, 3.7) ? 0.2 : 1;
  });
  const auto causes = locate(fleet_of(8), samples, {});
  ASSERT_THAT(causes, SizeIs(1));
  EXPECT_EQ(causes[0].place, CausePlace::kTransmit);
  EXPECT_EQ(causes[0].port.host, 3);
}

TEST(Intermittent, OfTwoHostsThePathIsNamed) {
  const Samples samples = looks(2, 80, [](double at_s, const Flow& flow) {
    return flow.from.host == 0 && in_spell(at_s, 0.6, 2.9) ? 0.5 : 1;
  });
  const auto causes = locate(fleet_of(2), samples, {});
  ASSERT_THAT(causes, SizeIs(1));
  EXPECT_EQ(causes[0].kind, CauseKind::kUnstable);
  EXPECT_EQ(causes[0].place, CausePlace::kPath);
}

// A steady fault of 10 % is at the detection limit of a single look: sometimes bad, sometimes good.
TEST(Intermittent, ASteadyFaultIsNotOne) {
  const auto fleet = fleet_of(8);
  for (const double left : {0.4, 0.85, 0.9})
    for (std::uint64_t seed = 1; seed <= 20; ++seed) {
      const Samples samples = looks(
          8, 30, [&](double, const Flow& flow) { return flow.to.host == 5 ? left : 1; }, seed);
      for (const Cause& cause : locate(fleet, samples, {}))
        EXPECT_NE(cause.kind, CauseKind::kUnstable) << left << " seed " << seed;
    }
}

// Half of the fleet shares an uplink: whether a path is slow depends on concurrent flows.
TEST(Intermittent, FlowsThatMeetOnAnUplinkAccuseNoEnd) {
  const auto fleet = fleet_of(16);
  std::mt19937_64 random(3);
  for (std::uint64_t seed = 1; seed <= 20; ++seed) {
    std::map<double, double> left;  // by time: the number of crossing flows is random
    const Samples samples = looks(
        16, 40,
        [&](double at_s, const Flow& flow) {
          const auto [of, first] = left.try_emplace(at_s, 1);
          if (first) of->second = std::uniform_real_distribution<>(0.5, 1.2)(random);
          const bool crosses = (flow.from.host < 8) != (flow.to.host < 8);
          return crosses ? std::min(1.0, of->second) : 1;
        },
        seed);
    for (const Cause& cause : locate(fleet, samples, {}))
      EXPECT_NE(cause.kind, CauseKind::kUnstable) << "seed " << seed;
  }
}

TEST(Intermittent, WhatHitsTheSameFlowsAgainIsOfFlows) {
  const auto bad_member = [](const Flow& flow) { return flow.to.host == 2 && flow.label % 4 == 1; };
  const auto share = [&](double at_s, const Flow& flow, bool of_flows) {
    if (of_flows) return bad_member(flow) ? 0.1 : 1.0;
    return flow.to.host == 2 && in_spell(at_s, 0.8, 3.1) ? 0.1 : 1.0;
  };
  for (const bool of_flows : {true, false}) {
    Samples samples =
        looks(8, 60, [&](double at_s, const Flow& flow) { return share(at_s, flow, of_flows); });
    for (int more = 0; more < 60; ++more) {
      const auto places =
          find_intermittent(fleet_of(8), samples, {}, [](Port, Port) { return false; });
      ASSERT_FALSE(places.empty());
      ASSERT_TRUE(places[0].named);
      EXPECT_EQ(places[0].place, CausePlace::kReceive);
      EXPECT_EQ(places[0].port.host, 2);
      const auto flows = flows_to_repeat(places[0]);
      if (flows.empty()) break;
      const double at_s = samples.rounds.back().at_s + 0.25;
      add_look(samples, flows[0], 100 * share(at_s, flows[0], of_flows));
    }
    const auto causes = locate(fleet_of(8), samples, {});
    ASSERT_THAT(causes, SizeIs(1));
    EXPECT_EQ(causes[0].of_flows, of_flows);
    EXPECT_EQ(causes[0].labels.empty(), !of_flows);
    for (const int label : causes[0].labels) EXPECT_EQ(label % 4, 1);
  }
}

// One of four links to host 2 loses packets, which hardly slows its flows.
TEST(Intermittent, FlowsThatLosePacketsAtOneMemberAreNamedAtItsPort) {
  const auto fleet = fleet_of(8);
  const Lost lost = [](double, const Flow& flow) {
    return flow.to.host == 2 && flow.label % 4 == 1 ? 0.03 : 0;
  };
  Samples samples = looks(8, 30, [](double, const Flow&) { return 1; });
  lose(lost, samples);
  for (int more = 0; more < 60; ++more) {
    const auto places = find_intermittent(fleet, samples, {}, [](Port, Port) { return false; });
    ASSERT_FALSE(places.empty());
    ASSERT_TRUE(places[0].named);
    const auto flows = flows_to_repeat(places[0]);
    if (flows.empty()) break;
    lose(lost, samples, add_look(samples, flows[0], 97));
  }
  const auto causes = locate(fleet, samples, {});
  ASSERT_THAT(causes, SizeIs(1));
  EXPECT_EQ(causes[0].kind, CauseKind::kLoss);
  EXPECT_EQ(causes[0].place, CausePlace::kReceive);
  EXPECT_EQ(causes[0].port.host, 2);
  EXPECT_TRUE(causes[0].of_flows);
  EXPECT_NEAR(causes[0].value, 0.03, 1e-3);
  EXPECT_FALSE(causes[0].labels.empty());
  for (const int label : causes[0].labels) EXPECT_EQ(label % 4, 1);
}

// A cut at the end of a look loses packets but does not change its rate.
TEST(Intermittent, LooksThatOnlyLosePacketsAreBad) {
  Samples samples = looks(8, 40, [](double, const Flow&) { return 1; });
  lose([](double at_s,
          const Flow& flow) { return flow.from.host == 3 && in_spell(at_s, 0.4, 3.1) ? 0.02 : 0; },
       samples);
  const auto causes = locate(fleet_of(8), samples, {});
  ASSERT_THAT(causes, SizeIs(1));
  EXPECT_EQ(causes[0].kind, CauseKind::kUnstable);
  EXPECT_EQ(causes[0].place, CausePlace::kTransmit);
  EXPECT_EQ(causes[0].port.host, 3);
}

// TCP waits for a timer if packets are lost, and if all acknowledgements are.
TEST(Intermittent, AFlowThatWaitsAndLostNothingAccusesTheWayBack) {
  for (const bool packets : {true, false}) {
    const auto cut = [](double at_s, const Flow& flow) {
      return flow.from.host == 3 && in_spell(at_s, 0.4, 3.1);
    };
    Samples samples = looks(8, 40, [](double, const Flow&) { return 1; });
    lose([&](double at_s, const Flow& flow) { return packets && cut(at_s, flow) ? 0.02 : 0; },
         samples);
    for (FlowSample& sample : samples.flows)
      if (cut(samples.rounds[static_cast<std::size_t>(sample.round)].at_s, sample.flow))
        std::fill(sample.window_gbps.begin() + 4, sample.window_gbps.end(), 0.0);
    const auto causes = locate(fleet_of(8), samples, {});
    ASSERT_THAT(causes, SizeIs(1));
    EXPECT_EQ(causes[0].place, packets ? CausePlace::kTransmit : CausePlace::kReceive);
    EXPECT_EQ(causes[0].port.host, 3);
  }
}

// Receivers that waited for a core two thirds of the time, and flows that are slower by as much.
TEST(Intermittent, FlowsThatWaitForACoreAccuseNoEnd) {
  Samples samples = looks(8, 40, [](double at_s, const Flow& flow) {
    return flow.to.host == 3 && in_spell(at_s, 1, 3.3) ? 0.4 : 1;
  });
  for (FlowSample& sample : samples.flows) {
    sample.sender_idle = 0;
    sample.receiver_limited = 0;  // the socket's buffers bridged the waits
    if (sample.gbps() < 50) sample.receiver_starved = 0.7;
  }
  const auto none = [](Port, Port) { return false; };
  for (const Intermittent& one : find_intermittent(fleet_of(8), samples, {}, none))
    EXPECT_FALSE(one.named);
  for (FlowSample& sample : samples.flows)
    sample.receiver_starved *= 0.5;  // explain less than that
  EXPECT_TRUE(std::ranges::any_of(find_intermittent(fleet_of(8), samples, {}, none),
                                  [](const Intermittent& one) { return one.named; }));
}

// A look may lose more or fewer packets than a lossy flow's average by chance.
TEST(Intermittent, ASteadyLossIsNotOne) {
  for (const double share : {7e-4, 1e-3, 2e-3, 2e-2})
    for (std::uint64_t seed = 1; seed <= 20; ++seed) {
      std::mt19937_64 random(seed);
      std::poisson_distribution<> events(share * 6800);
      Samples samples = looks(
          8, 30, [](double, const Flow&) { return 1; }, seed);
      for (FlowSample& sample : samples.flows) {
        sample.packets = 6800;
        sample.retransmits =
            sample.flow.from.host == 5 ? static_cast<std::uint64_t>(events(random)) : 0;
      }
      const auto causes = locate(fleet_of(8), samples, {});
      EXPECT_THAT(causes, Not(IsEmpty())) << share << " seed " << seed;
      for (const Cause& cause : causes) {
        EXPECT_EQ(cause.kind, CauseKind::kLoss) << share << " seed " << seed;
        EXPECT_EQ(cause.port.host, 5);
        EXPECT_FALSE(cause.of_flows);
      }
    }
}

// A healthy fleet in which one look of 300 is bad, as in the model.
TEST(Intermittent, BadLooksByChanceAccuseNobody) {
  const auto fleet = fleet_of(8);
  int accused = 0;
  for (std::uint64_t seed = 1; seed <= 300; ++seed) {
    std::mt19937_64 random(seed + 1000);
    const Samples samples = looks(
        8, 60,
        [&](double, const Flow&) { return std::bernoulli_distribution(3e-3)(random) ? 0.5 : 1; },
        seed);
    for (const Cause& cause : locate(fleet, samples, {})) accused += cause.confidence >= 0.95;
  }
  EXPECT_LE(accused, 1);
}

// Bursts of loss: few flows lose many packets, the others none. The same number of losses spread
// evenly is a loss of the port.
TEST(Intermittent, BurstsOfFewFlowsAreNoSteadyLoss) {
  const auto fleet = fleet_of(8);
  const auto lose = [&](Samples& samples, const std::function<std::uint64_t(int)>& lost) {
    int n = 0;
    for (FlowSample& sample : samples.flows) {
      sample.packets = 3000;
      sample.retransmits = sample.flow.from.host == 1 ? lost(n++) : 0;
    }
  };
  Samples bursts = looks(8, 20, [](double, const Flow&) { return 1; });
  lose(bursts, [](int n) { return n == 4 || n == 13 ? 30 : 0; });
  EXPECT_THAT(locate(fleet, bursts, {}), IsEmpty());
  lose(bursts, [](int) { return 3; });
  const auto causes = locate(fleet, bursts, {});
  ASSERT_THAT(causes, SizeIs(1));
  EXPECT_EQ(causes[0].kind, CauseKind::kLoss);
  EXPECT_EQ(causes[0].port.host, 1);
}

// The detector finds the loss that a report promises to detect in 95 of 100 runs.
TEST(Power, OfLossIsWhatIsPromised) {
  const Shape shape{8, 1};
  const Thresholds limits;
  const Scale scale{.counted = true,
                    .threshold = limits.fail_loss,
                    .background = background_loss(limits),
                    .confidence = limits.confidence};
  constexpr int kFlowsOfAnEnd = 14;
  for (const double packets : {3e3, 3e4, 3e5, 3e6}) {
    const double trials = kFlowsOfAnEnd * packets;
    const double loss = least_share(shape, 8 * kFlowsOfAnEnd, trials, scale);
    int named = 0;
    constexpr int kRuns = 1000;
    std::mt19937_64 random(7);
    for (int run = 0; run < kRuns; ++run) {
      std::vector<Observation> observations;
      for (int from = 0; from < 8; ++from)
        for (int i = 0; i < kFlowsOfAnEnd; ++i) {
          const int to = (from + 1 + i % 7) % 8;
          const double mean = packets * (from == 2 ? loss : 0);
          observations.push_back(
              {from, to,
               mean > 0 ? static_cast<double>(std::poisson_distribution<>(mean)(random)) : 0,
               packets});
        }
      for (const Place& place : attribute(shape, observations, scale))
        named += place.place == CausePlace::kTransmit && place.port.host == 2;
    }
    EXPECT_GE(named, 0.93 * kRuns) << packets << " packets a flow, loss " << loss;
    EXPECT_LE(named, 0.99 * kRuns) << packets << " packets a flow, loss " << loss;
  }
}

// The promise for intermittent faults: looks that are bad with the promised frequency.
TEST(Power, OfTheShareOfTimeIsWhatIsPromised) {
  constexpr int kRounds = 29, kFurther = 120, kRuns = 200;
  const auto fleet = fleet_of(8);
  const double share =
      smallest_share(fleet, looks(8, kRounds, [](double, const Flow&) { return 1; }), {});
  EXPECT_GT(share, kShareToSee);
  EXPECT_LT(share, 0.2);
  int named = 0;
  for (std::uint64_t seed = 1; seed <= kRuns; ++seed) {
    std::mt19937_64 random(seed);
    bool selected = false;
    const Samples samples = looks(
        8, kRounds + kFurther,
        [&](double at_s, const Flow& flow) {
          const bool bad = flow.from.host == 6 && std::bernoulli_distribution(share)(random);
          if (at_s < 0.5 * kRounds) selected |= bad;
          // Only a place selected by the planned looks gets further ones.
          return bad && (selected || at_s < 0.5 * kRounds) ? 0.5 : 1;
        },
        seed);
    for (const Cause& cause : locate(fleet, samples, {}))
      named += cause.kind == CauseKind::kUnstable && cause.place == CausePlace::kTransmit &&
               cause.port.host == 6;
  }
  EXPECT_GE(named, 0.92 * kRuns);
}

}  // namespace
}  // namespace weft::fabric
