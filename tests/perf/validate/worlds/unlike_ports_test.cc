// Ports with different declared rates, ports that one stream does not fill, and spreading
// back-pressure: intended differences are no findings, and faults are still found.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "perf/validate/locate/causes.h"
#include "perf/validate/locate/locate.h"
#include "perf/validate/locate/observations.h"
#include "perf/validate/worlds/world_fabric.h"
#include "perf/validate/worlds/world_run.h"

namespace weft::fabric {
namespace {

using ::testing::IsEmpty;
using ::testing::SizeIs;

// Hosts with one port of 400 Gb/s each; the last `slower` hosts have 200.
std::vector<FleetHost> hosts_of(int count, int slower) {
  std::vector<FleetHost> hosts;
  for (int h = 0; h < count; ++h)
    hosts.push_back({"h" + std::to_string(h),
                     false,
                     16,
                     {{"sim0", "", h < count - slower ? 400.0 : 200.0, 4096}}});
  return hosts;
}

void add(Samples& samples, Flow flow, double gbps, int round = 0) {
  FlowSample& sample = samples.flows.emplace_back();
  sample.flow = flow;
  sample.round = round;
  sample.seconds = 0.2;
  sample.window_gbps.assign(9, gbps);
  sample.packets = 1'000'000;
  sample.retransmits = 0;
  while (static_cast<int>(samples.rounds.size()) <= round) samples.rounds.emplace_back();
}

// All pairs of hosts, twice, at the rate of the slower port, or at the rate of port 0's sends.
Samples everyone(const std::vector<FleetHost>& hosts, double first_sends) {
  Samples samples;
  const int count = static_cast<int>(hosts.size());
  for (int again = 0; again < 2; ++again)
    for (int from = 0; from < count; ++from)
      for (int to = 0; to < count; ++to) {
        if (from == to) continue;
        const double most = expected_gbps(hosts, {from, 0}, {to, 0}, 0);
        add(samples, {{from, 0}, {to, 0}}, from == 0 ? std::min(first_sends, most) : most);
      }
  return samples;
}

TEST(UnlikePorts, ACutThatSlowerReceiversHideIsThePorts) {
  const auto hosts = hosts_of(8, 3);
  const std::vector<Cause> causes = locate(hosts, everyone(hosts, 220), {});
  ASSERT_THAT(causes, SizeIs(1));
  EXPECT_EQ(causes[0].place, CausePlace::kTransmit);
  EXPECT_EQ(causes[0].port, (Port{0, 0}));
  EXPECT_NEAR(causes[0].value, 220, 1);
  EXPECT_NEAR(causes[0].expected, 400, 1);
  EXPECT_THAT(locate(hosts, everyone(hosts, 400), {}), IsEmpty());
}

TEST(UnlikePorts, WhatOverloadsASlowerPortLosesPacketsByDesign) {
  const auto hosts = hosts_of(8, 3);
  Samples samples = everyone(hosts, 400);
  for (FlowSample& sample : samples.flows)
    if (outruns(hosts, sample.flow)) sample.retransmits = 30;
  EXPECT_THAT(locate(hosts, samples, {}), IsEmpty());
  for (FlowSample& sample : samples.flows)
    if (sample.flow.to.host == 7) sample.retransmits = 300;
  const std::vector<Cause> causes = locate(hosts, samples, {});
  ASSERT_THAT(causes, SizeIs(1)) << "senders of the same rate tell a loss";
  EXPECT_EQ(causes[0].kind, CauseKind::kLoss);
  EXPECT_EQ(causes[0].port, (Port{7, 0}));
}

TEST(UnitePaths, JoinTheirEndWhereItIsNamedAlready) {
  std::vector<Place> places;
  for (int to = 1; to <= 3; ++to) places.push_back({CausePlace::kPath, {0, 0}, {to, 0}, {}, 0.02});
  places.push_back({CausePlace::kTransmit, {0, 0}, {}, {}, 0.02});
  for (Place& place : places) place.flows = 2;
  unite_paths(places);
  ASSERT_THAT(places, SizeIs(1));
  EXPECT_EQ(places[0].place, CausePlace::kTransmit);
  EXPECT_EQ(places[0].flows, 8);
}

// Host 0 sends to the slow port of host 7 in every second round; meanwhile 1 -> 2 has `victim`.
Samples beside_a_slow_receiver(double victim) {
  Samples samples;
  for (int round = 0; round < 40; ++round) {
    const bool sends = round % 2 == 0;
    add(samples, {{1, 0}, {2, 0}}, sends ? victim : 400, round);
    add(samples, {{3, 0}, {4, 0}}, 400, round);
    add(samples, {{5, 0}, {6, 0}}, 400, round);
    if (sends) add(samples, {{0, 0}, {7, 0}}, 200, round);
  }
  return samples;
}

TEST(Spread, IsShownByTheRoundsInWhichSomebodySendsToTheReceiver) {
  const auto hosts = hosts_of(8, 0);
  Cause slow;
  slow.place = CausePlace::kReceive;
  slow.port = {7, 0};
  const Samples samples = beside_a_slow_receiver(300);
  const std::vector<Spread> spreads = find_spreads(hosts, samples, {slow}, {});
  ASSERT_THAT(spreads, SizeIs(1));
  EXPECT_EQ(spreads[0].receiver, slow.port);
  EXPECT_EQ(without_victims(hosts, samples, spreads, {}).flows.size(), samples.flows.size() - 20);
  EXPECT_THAT(find_spreads(hosts, beside_a_slow_receiver(400), {slow}, {}), IsEmpty());
  EXPECT_THAT(find_spreads(hosts, samples, {}, {}), IsEmpty()) << "no receiver is known";
  Samples always = samples;
  for (FlowSample& sample : always.flows)
    if (sample.flow.from.host == 1) sample.window_gbps.assign(9, 300);
  EXPECT_THAT(find_spreads(hosts, always, {slow}, {}), IsEmpty()) << "slow in all rounds";
}

Streams streams_in(SimWorld world) {
  world.noise = {0, 0, 0, 0};
  WorldFabric fabric(std::move(world));
  return calibrate(fabric);
}

TEST(Calibration, FindsTheStreamsThatFillAPort) {
  SimWorld capped = make_world("capped", 16, 2, 400, 1);
  for (auto& ports : capped.port_gbps) ports.assign(ports.size(), 400);
  capped.flow_gbps = 42;
  EXPECT_EQ(streams_in(capped).of_flow, 16);
  EXPECT_EQ(streams_in(capped).one_gbps, 0);
  capped.flow_gbps = 5;
  EXPECT_EQ(streams_in(capped).of_flow, kMostStreams);
  EXPECT_NEAR(streams_in(capped).one_gbps, 5, 0.01);
  EXPECT_EQ(streams_in(make_world("bonded", 16, 2, 400, 1)).of_flow, kMostStreams);
  EXPECT_EQ(streams_in(make_world("planes", 16, 2, 400, 1)).of_flow, 1);
  EXPECT_EQ(streams_in(make_world("spray+slow-rail", 16, 2, 400, 1)).of_flow, 1);
}

WorldScore score_of(const std::string& world, int seed) {
  SimulationOptions options;
  options.hosts = 16;
  options.plan.seed = static_cast<std::uint64_t>(seed);
  return run_world(world, options).score;
}

TEST(UnlikePorts, NobodyIsBlamedWhereNothingIsWrong) {
  for (const auto& [world, seeds] : {std::pair{"planes", 6}, {"capped", 2}, {"bonded", 1}})
    for (int seed = 1; seed <= seeds; ++seed)
      EXPECT_FALSE(score_of(world, seed).false_alarm) << world << " " << seed;
}

TEST(UnlikePorts, AFaultIsNamedAndNobodyElse) {
  for (const auto& [world, seeds] : {std::pair{"planes+slow-port", 3},
                                     {"capped+slow-port", 1},
                                     {"bonded+slow-member", 1},
                                     {"pauses+slow-path", 2}})
    for (int seed = 1; seed <= seeds; ++seed) {
      const WorldScore score = score_of(world, seed);
      EXPECT_EQ(score.innocents, 0) << world << " " << seed;
      for (const WorldScore::Fault& fault : score.faults)
        EXPECT_TRUE(fault.placed) << world << " " << seed;
    }
}

}  // namespace
}  // namespace weft::fabric
