// Localization of causes in hand-made samples: place, direction, value and confidence.
#include "perf/validate/locate/locate.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <random>

#include "perf/validate/conduct/next_round.h"
#include "perf/validate/sim/sim_fabric.h"
#include "perf/validate/sim/simulate.h"

namespace weft::fabric {
namespace {

using ::testing::IsEmpty;
using ::testing::SizeIs;

std::vector<FleetHost> declared_fleet(int hosts, int rails, double gbps) {
  std::vector<FleetHost> fleet;
  for (int h = 0; h < hosts; ++h) {
    FleetHost host{"h" + std::to_string(h), false, 4, {}};
    for (int r = 0; r < rails; ++r)
      host.ports.push_back({"eth", std::to_string(r) + "." + std::to_string(h), gbps, 4096});
    fleet.push_back(host);
  }
  return fleet;
}

// A sample of every directed pair of every rail; `fill` sets the measurement.
using Fill = std::function<void(FlowSample&, std::mt19937_64&)>;
void measure(Samples& samples, const std::vector<FleetHost>& fleet, Probe probe, const Fill& fill) {
  std::mt19937_64 random(1);
  samples.rounds.push_back({probe, {}});
  for (int a = 0; a < static_cast<int>(fleet.size()); ++a)
    for (int b = 0; b < static_cast<int>(fleet.size()); ++b)
      for (int r = 0; a != b && r < static_cast<int>(fleet[0].ports.size()); ++r) {
        FlowSample sample;
        sample.round = static_cast<int>(samples.rounds.size()) - 1;
        sample.flow = {{a, r}, {b, r}};
        sample.seconds = 0.3;
        fill(sample, random);
        samples.flows.push_back(sample);
      }
}

// Rates around 100 Gb/s with 1 % of noise.
Samples rates(const std::vector<FleetHost>& fleet, const std::function<double(Port, Port)>& share) {
  Samples samples;
  measure(samples, fleet, Probe::kRate, [&](FlowSample& sample, std::mt19937_64& random) {
    const double noise = std::normal_distribution<>(1, 0.01)(random);
    sample.window_gbps.assign(9, 100 * noise * share(sample.flow.from, sample.flow.to));
    sample.window_s = 0.03;
  });
  return samples;
}

void expect_sound(const Cause& cause) {
  EXPECT_LE(cause.low, cause.value);
  EXPECT_GE(cause.high, cause.value);
  EXPECT_GT(cause.confidence, 0);
  EXPECT_LE(cause.confidence, 1);
  EXPECT_GT(cause.samples, 0);
}

TEST(Locate, AHealthyFleetHasNoCause) {
  const auto fleet = declared_fleet(6, 2, 100);
  EXPECT_THAT(locate(fleet, rates(fleet, [](Port, Port) { return 1; }), {}), IsEmpty());
  EXPECT_THAT(locate(fleet, {}, {}), IsEmpty());
}

TEST(Locate, OneDirectionOfOnePort) {
  const auto fleet = declared_fleet(6, 2, 100);
  const auto causes = locate(fleet,
                             rates(fleet,
                                   [](Port from, Port) {
                                     return from == Port{3, 1} ? 0.5 : 1;
                                   }),
                             {});
  ASSERT_THAT(causes, SizeIs(1));
  EXPECT_EQ(causes[0].kind, CauseKind::kRate);
  EXPECT_EQ(causes[0].place, CausePlace::kTransmit);
  EXPECT_EQ(causes[0].port, (Port{3, 1}));
  EXPECT_NEAR(causes[0].value, 50, 1.5);
  EXPECT_NEAR(causes[0].expected, 100, 2);
  EXPECT_GT(causes[0].confidence, 0.95);
  expect_sound(causes[0]);
}

// The worst place of a route determines its rate, so two faults on one path do not multiply.
TEST(Locate, TwoFaultsThatMeetOnAPath) {
  const auto fleet = declared_fleet(6, 1, 100);
  const auto causes =
      locate(fleet,
             rates(fleet,
                   [](Port from, Port to) {
                     return std::min(from.host == 1 ? 0.8 : 1, to.host == 4 ? 0.3 : 1);
                   }),
             {});
  ASSERT_THAT(causes, SizeIs(2));
  for (const Cause& cause : causes) {
    const bool sender = cause.place == CausePlace::kTransmit;
    EXPECT_EQ(cause.port.host, sender ? 1 : 4);
    EXPECT_NEAR(cause.value, sender ? 80 : 30, 2);
  }
}

TEST(Locate, APathIsNotItsEnds) {
  const auto fleet = declared_fleet(6, 1, 100);
  const auto one_way = locate(
      fleet,
      rates(fleet, [](Port from, Port to) { return from.host == 1 && to.host == 4 ? 0.5 : 1; }),
      {});
  ASSERT_THAT(one_way, SizeIs(1));
  EXPECT_EQ(one_way[0].place, CausePlace::kPath);
  EXPECT_EQ(one_way[0].port.host, 1);
  EXPECT_EQ(one_way[0].peer.host, 4);
  EXPECT_LT(one_way[0].confidence, 0.95) << "one flow alone is not sure";
  const auto both =
      locate(fleet,
             rates(fleet,
                   [](Port from, Port to) {
                     return from.host + to.host == 5 && from.host * to.host == 4 ? 0.5 : 1;
                   }),
             {});
  ASSERT_THAT(both, SizeIs(1));
  EXPECT_EQ(both[0].place, CausePlace::kPair);
}

// With few events, two hosts differ from the fleet only if a host's ports and directions are
// counted together.
TEST(Locate, TwoHostsThatLoseFewPacketsAreNotTheFleet) {
  for (std::uint64_t seed = 1; seed <= 8; ++seed) {
    SimulateOptions options;
    options.fabric.hosts = 5;
    options.fabric.rate_gbps = 0.4;
    options.fabric.tcp = true;
    options.fabric.mtu = 1500;
    options.fabric.seed = options.plan.seed = seed;
    options.plan.budget_s = 30;
    for (const int host : {0, 3})
      options.fabric.faults.push_back(
          {FaultKind::kLoss, FaultPlace::kHost, FaultWay::kBoth, {host, 0}, {}, 1e-4});
    EXPECT_TRUE(simulate_fleet(options).right()) << "seed " << seed;
  }
}

TEST(Locate, HostsRailsAndTheFleet) {
  const auto fleet = declared_fleet(6, 2, 100);
  const auto host = locate(
      fleet,
      rates(fleet, [](Port from, Port to) { return from.host == 2 || to.host == 2 ? 0.4 : 1; }),
      {});
  ASSERT_THAT(host, SizeIs(1));
  EXPECT_EQ(host[0].place, CausePlace::kHost);
  EXPECT_EQ(host[0].port.host, 2);
  const auto rail =
      locate(fleet, rates(fleet, [](Port from, Port) { return from.rail ? 0.6 : 1; }), {});
  ASSERT_THAT(rail, SizeIs(1));
  EXPECT_EQ(rail[0].place, CausePlace::kRail);
  EXPECT_EQ(rail[0].port.rail, 1);
  EXPECT_NEAR(rail[0].expected, 100, 1e-9) << "the declared rate";
  const auto all = locate(fleet, rates(fleet, [](Port, Port) { return 0.3; }), {});
  ASSERT_THAT(all, SizeIs(1));
  EXPECT_EQ(all[0].place, CausePlace::kFleet);
  EXPECT_NEAR(all[0].value, 30, 0.5);
}

TEST(Locate, WithoutADeclaredRateTheFleetIsTheMeasure) {
  const auto fleet = declared_fleet(6, 2, 0);
  EXPECT_THAT(locate(fleet, rates(fleet, [](Port, Port) { return 0.3; }), {}), IsEmpty())
      << "nobody says that this is slow";
  const auto rail =
      locate(fleet, rates(fleet, [](Port from, Port) { return from.rail ? 0.6 : 1; }), {});
  ASSERT_THAT(rail, SizeIs(1)) << "one rail is slower than the other";
  EXPECT_EQ(rail[0].place, CausePlace::kRail);
  EXPECT_NEAR(rail[0].value, 60, 2);
  const auto port = locate(fleet,
                           rates(fleet,
                                 [](Port from, Port) {
                                   return from == Port{0, 0} ? 0.5 : 1;
                                 }),
                           {});
  ASSERT_THAT(port, SizeIs(1));
  EXPECT_EQ(port[0].place, CausePlace::kTransmit);
}

TEST(Locate, OfThreeHostsOneBadPortIsTheMinority) {
  const auto fleet = declared_fleet(3, 1, 0);
  const auto causes = locate(
      fleet,
      rates(fleet, [](Port from, Port to) { return from.host == 1 || to.host == 1 ? 0.5 : 1; }),
      {});
  ASSERT_THAT(causes, SizeIs(1));
  EXPECT_EQ(causes[0].place, CausePlace::kPort);
  EXPECT_EQ(causes[0].port.host, 1);
}

TEST(Locate, OfTwoHostsTheDirectionIsKnownAndTheEndIsNot) {
  const auto fleet = declared_fleet(2, 2, 100);
  const auto one = locate(fleet,
                          rates(fleet,
                                [](Port from, Port) {
                                  return from == Port{1, 1} ? 0.5 : 1;
                                }),
                          {});
  ASSERT_THAT(one, SizeIs(1));
  EXPECT_EQ(one[0].place, CausePlace::kPath);
  EXPECT_EQ(one[0].port, (Port{1, 1}));
  EXPECT_EQ(one[0].peer, (Port{0, 1}));
  const auto both =
      locate(fleet, rates(fleet, [](Port from, Port) { return from.rail ? 0.5 : 1; }), {});
  ASSERT_THAT(both, SizeIs(1));
  EXPECT_EQ(both[0].place, CausePlace::kPair);
}

TEST(Locate, WhatIsBehindOneLeafIsAGroup) {
  const auto fleet = declared_fleet(9, 1, 100);
  const auto leaf = [](Port port) { return port.host / 3; };
  const auto up = locate(
      fleet,
      rates(fleet, [&](Port from, Port to) { return leaf(from) == 1 && leaf(to) != 1 ? 0.5 : 1; }),
      {});
  ASSERT_THAT(up, SizeIs(1));
  EXPECT_EQ(up[0].place, CausePlace::kGroup);
  EXPECT_EQ(up[0].ports, (std::vector<Port>{{3, 0}, {4, 0}, {5, 0}}));
  expect_sound(up[0]);
}

// A flow that waited for a core half of the time could have been at most twice as fast.
TEST(Locate, StarvedFlowsAccuseOnlyBeyondTheirWaits) {
  const auto fleet = declared_fleet(5, 1, 100);
  Samples slow = rates(fleet, [](Port from, Port) { return from.host == 2 ? 0.5 : 1; });
  const auto starve = [&](double share) {
    for (FlowSample& sample : slow.flows)
      if (sample.flow.from.host == 2) sample.sender_starved = share;
  };
  starve(0.5);
  EXPECT_THAT(locate(fleet, slow, {}), IsEmpty());
  starve(0.3);
  const auto causes = locate(fleet, slow, {});
  ASSERT_THAT(causes, SizeIs(1));
  EXPECT_EQ(causes[0].place, CausePlace::kTransmit);
  EXPECT_NEAR(causes[0].value, 50 / 0.7, 2) << "what is sure: the rate is at most that";
  for (FlowSample& sample : slow.flows) sample.sender_starved = 0;
  EXPECT_THAT(locate(fleet, slow, {}), SizeIs(1));
  for (FlowSample& sample : slow.flows)
    if (sample.flow.from.host == 2) sample.receiver_limited = 0.9;
  EXPECT_THAT(locate(fleet, slow, {}), IsEmpty()) << "the receiver's program was slow";
}

// From netlab on a busy machine: a port shaped to 85 %, whose peers' programs waited for a core
// while their kernels kept receiving; and healthy ports whose hosts were stopped for one window of
// ten. Other load on a machine slows all flows, and some of them do not notice it.
TEST(Locate, AFewSlowFlowsAmongManyThatWaitedAreNotTheFleet) {
  const auto fleet = declared_fleet(4, 2, 100);
  Samples samples = rates(fleet, [](Port, Port) { return 0.6; });
  ASSERT_THAT(locate(fleet, samples, {}), SizeIs(1)) << "nobody waited: it is the fleet";
  int n = 0;
  for (FlowSample& sample : samples.flows)
    if (n++ % 4 != 0) sample.sender_starved = 0.5;
  EXPECT_THAT(locate(fleet, samples, {}), IsEmpty());
}

TEST(Locate, WaitsThatTheBuffersBridgedAreNoExcuse) {
  const auto fleet = declared_fleet(5, 2, 100);
  Samples samples = rates(fleet, [](Port from, Port) { return from == Port{2, 1} ? 0.85 : 1; });
  for (FlowSample& sample : samples.flows) {
    sample.sender_starved = 0.08;
    sample.receiver_starved = 0.25;
    sample.sender_idle = 0.0;
    sample.receiver_limited = 0.0;
    if (sample.flow.from != Port{2, 1}) sample.window_gbps[4] = 0;
  }
  const auto causes = locate(fleet, samples, {});
  ASSERT_THAT(causes, SizeIs(1));
  EXPECT_EQ(causes[0].place, CausePlace::kTransmit);
  EXPECT_EQ(causes[0].port, (Port{2, 1}));
  EXPECT_NEAR(causes[0].value, 85, 2);
  for (FlowSample& sample : samples.flows) sample.sender_idle = 0.3;
  EXPECT_THAT(locate(fleet, samples, {}), IsEmpty()) << "the socket ran dry";
}

// Paced flows lose `low`, flows at full speed `full` of a million packets.
Samples losses(const std::vector<FleetHost>& fleet, const std::function<double(Port, Port)>& low,
               const std::function<double(Port, Port)>& full) {
  Samples samples = rates(fleet, [](Port, Port) { return 1; });
  const auto lose = [](FlowSample& sample, double share) {
    sample.packets = 1'000'000;
    sample.retransmits = static_cast<std::uint64_t>(1e6 * share);
  };
  for (FlowSample& sample : samples.flows) lose(sample, full(sample.flow.from, sample.flow.to));
  measure(samples, fleet, Probe::kLowLoad, [&](FlowSample& sample, std::mt19937_64&) {
    sample.flow.pace = 0.1;
    lose(sample, low(sample.flow.from, sample.flow.to));
  });
  return samples;
}

TEST(Locate, LossWithoutLoadIsNamedWithItsRate) {
  const auto fleet = declared_fleet(5, 2, 100);
  const auto lossy = [](Port from, Port) { return from == Port{4, 1} ? 1e-4 : 0; };
  const auto causes = locate(fleet, losses(fleet, lossy, lossy), {});
  ASSERT_THAT(causes, SizeIs(1));
  EXPECT_EQ(causes[0].kind, CauseKind::kLoss);
  EXPECT_EQ(causes[0].place, CausePlace::kTransmit);
  EXPECT_NEAR(causes[0].value, 1e-4, 1e-5);
  EXPECT_FALSE(causes[0].loaded_only);
  expect_sound(causes[0]);
}

TEST(Locate, LossUnderLoadOnlyIsSaidToBeThat) {
  const auto fleet = declared_fleet(5, 2, 100);
  const auto none = [](Port, Port) { return 0; };
  const auto causes = locate(fleet,
                             losses(fleet, none,
                                    [](Port, Port to) {
                                      return to == Port{4, 1} ? 1e-3 : 0;
                                    }),
                             {});
  ASSERT_THAT(causes, SizeIs(1));
  EXPECT_EQ(causes[0].place, CausePlace::kReceive);
  EXPECT_TRUE(causes[0].loaded_only);
}

TEST(Locate, WhatTcpLosesAtFullSpeedByDesignIsNoCause) {
  const auto fleet = declared_fleet(5, 2, 100);
  const auto none = [](Port, Port) { return 0; };
  EXPECT_THAT(locate(fleet, losses(fleet, none, [](Port, Port) { return 1e-3; }), {}), IsEmpty());
}

TEST(Locate, AFewStrayRetransmitsAreNoCause) {
  const auto fleet = declared_fleet(5, 2, 100);
  const auto stray = [](Port from, Port to) {
    return from == Port{0, 0} && to.host == 1 ? 2e-6 : 0;
  };
  EXPECT_THAT(locate(fleet, losses(fleet, stray, stray), {}), IsEmpty());
}

TEST(Locate, ARateThatLossExplainsIsNoSecondCause) {
  const auto fleet = declared_fleet(5, 1, 100);
  Samples samples = losses(
      fleet, [](Port from, Port) { return from.host == 2 ? 1e-2 : 0; },
      [](Port from, Port) { return from.host == 2 ? 1e-2 : 0; });
  for (FlowSample& sample : samples.flows)
    if (sample.flow.from.host == 2)
      for (double& gbps : sample.window_gbps) gbps *= 0.4;  // go-back-N at 1e-2
  auto causes = locate(fleet, samples, {});
  ASSERT_THAT(causes, SizeIs(1));
  EXPECT_EQ(causes[0].kind, CauseKind::kLoss);
  for (FlowSample& sample : samples.flows)
    if (sample.flow.from.host == 2) sample.retransmits = 100;  // 1e-4 does not explain such a rate
  causes = locate(fleet, samples, {});
  EXPECT_THAT(causes, SizeIs(2));
}

TEST(Locate, LatencyDeadPortsMtuAndSwappedCables) {
  const auto fleet = declared_fleet(5, 2, 100);
  Samples samples;
  measure(samples, fleet, Probe::kReach, [](FlowSample& sample, std::mt19937_64&) {
    const Port from = sample.flow.from, to = sample.flow.to;
    sample.reached = from != Port{0, 1} && to != Port{0, 1};
    if (!sample.reached) return;
    sample.arrived_at = to;
    if ((from.host == 3) != (to.host == 3)) sample.arrived_at = Port{to.host, 1 - to.rail};
  });
  measure(samples, fleet, Probe::kPathMtu, [](FlowSample& sample, std::mt19937_64&) {
    const bool small = sample.flow.from == Port{1, 0} || sample.flow.to == Port{1, 0};
    sample.passed_mtu = small ? 1400 : 4096;
    sample.failed_mtu = *sample.passed_mtu + 1;
  });
  measure(samples, fleet, Probe::kLatency, [](FlowSample& sample, std::mt19937_64& random) {
    const bool far = sample.flow.from.host == 2 || sample.flow.to.host == 2;
    const double us = (far ? 60 : 10) * std::normal_distribution<>(1, 0.05)(random);
    sample.reached = sample.flow.from != Port{0, 1} && sample.flow.to != Port{0, 1};
    if (sample.reached) sample.latency = LatencySample{100, us * 0.9, us, us * 1.5, us * 2, us * 3};
  });
  const auto causes = locate(fleet, samples, {});
  ASSERT_THAT(causes, SizeIs(4));
  for (const Cause& cause : causes) {
    expect_sound(cause);
    switch (cause.kind) {
      case CauseKind::kUnreachable:
        EXPECT_EQ(cause.place, CausePlace::kPort);
        EXPECT_EQ(cause.port, (Port{0, 1}));
        break;
      case CauseKind::kMtu:
        EXPECT_EQ(cause.place, CausePlace::kPort);
        EXPECT_EQ(cause.port, (Port{1, 0}));
        EXPECT_EQ(cause.value, 1400);
        EXPECT_EQ(cause.expected, 4096);
        break;
      case CauseKind::kLatency:
        EXPECT_EQ(cause.place, CausePlace::kHost);
        EXPECT_EQ(cause.port.host, 2);
        EXPECT_NEAR(cause.value, 60, 6);
        break;
      case CauseKind::kSwapped:
        EXPECT_EQ(cause.port.host, 3);
        EXPECT_EQ(cause.peer.host, 3);
        EXPECT_NE(cause.port.rail, cause.peer.rail);
        break;
      default:
        ADD_FAILURE() << "kind " << static_cast<int>(cause.kind);
    }
  }
}

TEST(Locate, OutagesOfAPortAreUnstableNotSlow) {
  const auto fleet = declared_fleet(6, 1, 100);
  Samples samples = rates(fleet, [](Port, Port) { return 1; });
  int outages = 0;
  for (FlowSample& sample : samples.flows)
    if ((sample.flow.from.host == 2 || sample.flow.to.host == 2) && outages++ % 3 == 0)
      for (std::size_t w = 2; w < 7; ++w) sample.window_gbps[w] = 0;
  const auto causes = locate(fleet, samples, {});
  ASSERT_THAT(causes, SizeIs(1));
  EXPECT_EQ(causes[0].kind, CauseKind::kUnstable);
  EXPECT_EQ(causes[0].place, CausePlace::kPort);
  EXPECT_EQ(causes[0].port.host, 2);
  EXPECT_EQ(causes[0].value, 0);
}

TEST(Locate, PortsWithOneAddressSpeakForNothing) {
  auto fleet = declared_fleet(5, 1, 100);
  fleet[1].ports[0].address = fleet[3].ports[0].address;
  const Samples samples =
      rates(fleet, [](Port from, Port to) { return from.host == 1 || to.host == 1 ? 0.1 : 1; });
  EXPECT_THAT(locate(fleet, samples, {}), IsEmpty()) << "the facts name the address";
}

TEST(NextRound, TestsASuspectAgainstAKnownGoodPartner) {
  const auto fleet = declared_fleet(6, 1, 100);
  Samples samples;
  samples.rounds.push_back({Probe::kRate, {}});
  // Port 0 was measured with port 1 only, and port 2 is known to be slow.
  const auto add = [&](int a, int b, double gbps) {
    FlowSample sample;
    sample.flow = {{a, 0}, {b, 0}};
    sample.window_gbps.assign(9, gbps);
    samples.flows.push_back(sample);
  };
  add(0, 1, 50);
  for (int a = 1; a < 6; ++a)
    for (int b = 1; b < 6; ++b)
      if (a != b) add(a, b, a == 2 ? 30 : 100);
  const auto causes = locate(fleet, samples, {});
  ASSERT_THAT(causes, SizeIs(2));
  EXPECT_EQ(causes[1].place, CausePlace::kPath);
  const auto round = next_round(fleet, samples, causes, {}, 0);
  ASSERT_TRUE(round);
  EXPECT_EQ(round->probe, Probe::kRate);
  ASSERT_THAT(round->flows, SizeIs(1)) << "port 1 receives well from others: only port 0 is open";
  EXPECT_EQ(round->flows[0].from.host, 0);
  EXPECT_GT(round->flows[0].to.host, 2);
}

TEST(NextRound, NothingWhereAllIsClear) {
  const auto fleet = declared_fleet(6, 1, 100);
  const Samples samples = rates(fleet, [](Port from, Port) { return from.host == 2 ? 0.5 : 1; });
  EXPECT_FALSE(next_round(fleet, samples, locate(fleet, samples, {}), {}, 0));
  EXPECT_FALSE(next_round(fleet, {}, {}, {}, 0));
}

TEST(NextRound, GivesPortsThatWereStarvedAnotherChance) {
  const auto fleet = declared_fleet(4, 1, 100);
  Samples samples = rates(fleet, [](Port, Port) { return 1; });
  for (FlowSample& sample : samples.flows)
    if (sample.flow.from.host == 1) sample.sender_starved = 0.5;
  const auto round = next_round(fleet, samples, {}, {}, 1);
  ASSERT_TRUE(round);
  ASSERT_THAT(round->flows, SizeIs(1));
  EXPECT_EQ(round->flows[0].from.host, 1);
}

}  // namespace
}  // namespace weft::fabric
