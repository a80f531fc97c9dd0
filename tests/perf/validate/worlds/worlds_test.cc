// Worlds have the properties that they claim: shares of time, collisions, means, and no port above
// its rate.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <functional>

#include "perf/validate/worlds/world_fabric.h"
#include "topo/base/status.h"

namespace weft::fabric {
namespace {

using ::testing::HasSubstr;

SimWorld quiet_world(const std::string& name, std::uint64_t seed = 1, int hosts = 16) {
  SimWorld world = make_world(name, hosts, 2, 400, seed);
  world.noise = {0, 0, 0, 0};
  world.recovery = Recovery::kSelective;  // TCP loses packets while it waits
  return world;
}

std::vector<FlowSample> rates_of(WorldFabric& fabric, std::vector<Flow> flows) {
  return fabric.run({Probe::kRate, std::move(flows)});
}

double rate_of(WorldFabric& fabric, Port from, Port to) {
  return rates_of(fabric, {{from, to}})[0].gbps();
}

// The share of `flows` runs of one flow for which `is` is true.
double share_of(WorldFabric& fabric, int flows, Port from, Port to,
                const std::function<bool(const FlowSample&)>& is) {
  int yes = 0;
  for (int i = 0; i < flows; ++i) yes += is(rates_of(fabric, {{from, to}})[0]);
  return static_cast<double>(yes) / flows;
}

TEST(SpellClock, KeepsItsShareOfTimeAndItsLengths) {
  SpellClock cuts({0.5, 3, 0.02, 0.05}, 1);
  int in = 0, begun = 0, length = 0;
  constexpr int kMs = 1'000'000;
  for (int ms = 0; ms < kMs; ++ms) {
    if (cuts.at(ms / 1000.0)) {
      begun += length++ == 0;
      ++in;
      ASSERT_LE(length, 51);
    } else {
      ASSERT_TRUE(length == 0 || length >= 19) << length;
      length = 0;
    }
  }
  EXPECT_NEAR(static_cast<double>(in) / kMs, 0.035 / 1.75, 0.001);
  EXPECT_NEAR(static_cast<double>(kMs) / 1000 / begun, 1.75, 0.08);
  EXPECT_TRUE(SpellClock({}, 1).at(5)) << "no period: always";
}

TEST(Wander, HasItsDeviationItsCorrelationAndItsDips) {
  Wander wander(0.03, 0.5, 0, 2, 1);
  std::vector<double> logs;
  for (int i = 0; i < 50'000; ++i) logs.push_back(std::log(wander.at(i * 0.1)));
  double mean = 0, square = 0, later = 0;
  for (const double x : logs) mean += x / 50'000;
  for (std::size_t i = 0; i + 5 < logs.size(); ++i) {
    square += logs[i] * logs[i];
    later += logs[i] * logs[i + 5];
  }
  EXPECT_NEAR(mean, 0, 0.002);
  EXPECT_NEAR(std::sqrt(square / 50'000), 0.03, 0.001);
  EXPECT_NEAR(later / square, std::exp(-1), 0.03) << "after 0.5 s";

  // The remaining rate in a dip is a power of a uniform number, with the mean a / (a + 1).
  Wander dips(0, 0.5, 1, 2, 1);
  double sum = 0;
  int in = 0;
  for (int i = 0; i < 200'000; ++i)
    if (const double factor = dips.at(i * 0.05); factor < 1) {
      sum += factor;
      ++in;
    }
  EXPECT_NEAR(sum / in, 2.0 / 3, 0.02);
  EXPECT_NEAR(in / 2e5, 0.275 / 1.275, 0.01);
}

TEST(World, EcmpFlowsMeetAsBallsInBins) {
  WorldFabric fabric(quiet_world("clos"));
  constexpr int kRounds = 1500;
  int met = 0;
  for (int i = 0; i < kRounds; ++i) {
    const auto samples = rates_of(fabric, {{{0, 0}, {4, 0}}, {{1, 0}, {8, 0}}});
    met += samples[0].gbps() < 300;
    EXPECT_EQ(samples[0].gbps() < 300, samples[1].gbps() < 300);
  }
  EXPECT_NEAR(static_cast<double>(met) / kRounds, 0.25, 0.03) << "one of four uplinks";
  EXPECT_NEAR(rate_of(fabric, {0, 0}, {1, 0}), 390, 1) << "stays below the leaf";
}

TEST(World, AFlowWithALabelTakesOneWayAndOneWithoutMany) {
  WorldFabric fabric(quiet_world("clos+lossy-uplink", 5));
  const Effect fault = make_world("clos+lossy-uplink", 16, 2, 400, 5).effects[0];
  const Port below = fault.port, far{(below.host + 8) % 16, below.rail};
  const bool up = fault.way == FaultWay::kTransmit;
  const Port from = up ? below : far, to = up ? far : below;
  const auto lost = [](const FlowSample& sample) { return *sample.retransmits > 0; };
  EXPECT_NEAR(share_of(fabric, 2000, from, to, lost), 0.25, 0.04);
  EXPECT_EQ(share_of(fabric, 200, to, from, lost), 0) << "one way";
  int labels = 0;
  for (int label = 1; label <= 40; ++label) {
    int times = 0;
    for (int i = 0; i < 5; ++i)
      times += lost(fabric.run({Probe::kEntropy, {{from, to, 1, label}}})[0]);
    EXPECT_TRUE(times == 0 || times == 5) << times;
    labels += times > 0;
  }
  EXPECT_GT(labels, 0);
  EXPECT_LT(labels, 30);
}

TEST(World, SprayedPacketsShareAllUplinksAndComeOutOfOrder) {
  WorldFabric fabric(quiet_world("spray"));
  std::vector<Flow> flows;
  for (int h = 0; h < 4; ++h) flows.push_back({{h, 0}, {h + 4, 0}});
  for (int i = 0; i < 20; ++i)
    for (const FlowSample& sample : rates_of(fabric, flows)) {
      EXPECT_NEAR(sample.gbps(), 390, 1);
      EXPECT_EQ(*sample.retransmits, 0u);
    }
  EXPECT_GT(fabric.counters({4, 0}).at("hw.out_of_sequence").value, 0u);
  EXPECT_EQ(fabric.counters({0, 0}).at("hw.out_of_sequence").value, 0u) << "received nothing";
}

TEST(World, ABondGivesAFlowOneMember) {
  WorldFabric fabric(quiet_world("bonded"));
  EXPECT_NEAR(rate_of(fabric, {0, 0}, {1, 0}), 195, 1);
  EXPECT_EQ(fabric.hosts()[0].ports[0].expected_gbps, 400);
  SimWorld many = quiet_world("bonded");
  many.streams = 8;
  WorldFabric both(many);
  EXPECT_NEAR(rate_of(both, {0, 0}, {1, 0}), 390, 1) << "connections on both members";
  WorldFabric lossy(quiet_world("bonded+lossy-member"));
  const Effect fault = make_world("bonded+lossy-member", 16, 2, 400, 1).effects[0];
  const Port other{(fault.port.host + 1) % 16, fault.port.rail};
  const bool sends = fault.way == FaultWay::kTransmit;
  const double share = share_of(lossy, 1000, sends ? fault.port : other, sends ? other : fault.port,
                                [](const FlowSample& sample) { return *sample.retransmits > 0; });
  EXPECT_NEAR(share, 0.5, 0.06);
}

TEST(World, PlanesAndHostsDiffer) {
  const SimWorld world = quiet_world("planes", 2, 64);
  int without = 0, slower = 0;
  for (const auto& ports : world.port_gbps) {
    without += ports.size() == 1;
    slower += ports[0] == 200;
    EXPECT_EQ(ports.back(), ports.size() == 2 ? ports[0] / 2 : ports[0]);
  }
  EXPECT_GT(without, 4);
  EXPECT_GT(slower, 4);
  EXPECT_GT(64 - without - slower, 20);
}

TEST(World, AConnectionReachesItsCap) {
  for (std::uint64_t seed = 1; seed <= 20; ++seed) {
    WorldFabric fabric(quiet_world("capped", seed));
    const double gbps = rate_of(fabric, {0, 0}, {1, 0});
    EXPECT_GT(gbps, 29);
    EXPECT_LT(gbps, 60.1);
    SimWorld eight = quiet_world("capped", seed);
    eight.streams = 8;
    WorldFabric wide(eight);
    EXPECT_NEAR(rate_of(wide, {0, 0}, {1, 0}), std::min(8 * gbps, 0.975 * eight.port_gbps[0][0]),
                0.1);
  }
}

TEST(World, BurstsGoOneWayAndTheMeanIsTheirShareOfTime) {
  SimWorld world = quiet_world("bursts");
  const Effect fault = world.effects[0];
  WorldFabric fabric(world);
  const Port other{(fault.port.host + 1) % 16, fault.port.rail};
  const bool sends = fault.way == FaultWay::kTransmit;
  double lost = 0, packets = 0, back = 0;
  for (int i = 0; i < 1000; ++i) {
    const auto samples = rates_of(fabric, {{fault.port, other}, {other, fault.port}});
    const FlowSample& hit = samples[sends ? 0 : 1];
    lost += static_cast<double>(*hit.retransmits);
    packets += static_cast<double>(*hit.packets);
    back += static_cast<double>(*samples[sends ? 1 : 0].retransmits);
  }
  EXPECT_NEAR(lost / packets, fault.strength * 0.03 / 0.6, fault.strength * 0.01);
  EXPECT_EQ(back, 0);
}

TEST(World, APausingReceiverSlowsWhoSharesTheSendersLeaf) {
  SimWorld world = quiet_world("pauses");
  const Effect fault = world.effects[0];
  const int rail = fault.port.rail, leaf = fault.port.host / 4 * 4;
  const auto host = [&](int n) { return Port{(leaf + n) % 16, rail}; };  // 0 to 3: the receiver's
  WorldFabric fabric(world);
  const std::vector<Flow> flows{
      {host(4), fault.port}, {host(5), host(8)}, {host(9), host(12)}, {host(6), host(7)}};
  const auto samples = rates_of(fabric, flows);
  EXPECT_NEAR(samples[0].gbps(), 390 * fault.strength, 1);
  EXPECT_NEAR(samples[1].gbps(), 390 * (1 + fault.strength) / 2, 1) << "a victim";
  EXPECT_NEAR(samples[2].gbps(), 390, 1) << "another leaf";
  EXPECT_NEAR(samples[3].gbps(), 390, 1) << "stays below the leaf";
  EXPECT_NEAR(rates_of(fabric, {flows[1]})[0].gbps(), 390, 1) << "nobody sends to the receiver";
}

TEST(World, CutsSpellsAndNodesComeAndGo) {
  for (const char* name : {"cuts", "spells", "numa"}) {
    const SimWorld world = quiet_world(name);
    const Effect fault = world.effects[0];
    WorldFabric fabric(world);
    const bool sends = fault.way != FaultWay::kReceive;
    const Port other{(fault.port.host + 1) % 16, fault.port.rail};
    int hit = 0, whole = 0;
    for (int i = 0; i < 200; ++i) {
      const auto samples =
          rates_of(fabric, {{sends ? fault.port : other, sends ? other : fault.port},
                            {{(fault.port.host + 2) % 16, 1 - fault.port.rail},
                             {(fault.port.host + 3) % 16, 1 - fault.port.rail}}});
      const double gbps = samples[0].lowest_gbps();
      hit += gbps < 390 * std::max(0.01, fault.strength) + 1;
      whole += gbps > 389;
      EXPECT_GT(samples[1].lowest_gbps(), 389);
    }
    EXPECT_GT(hit, 10) << name;
    EXPECT_GT(whole, 10) << name;
  }
}

TEST(World, NoLinkCarriesMoreThanItsRateAndSeedsRepeat) {
  for (const WorldPart& part : world_parts()) {
    const std::string name = part.name;
    const std::string needs = name.ends_with("uplink")   ? "clos+"
                              : name.ends_with("member") ? "bonded+"
                                                         : "noise+";
    WorldFabric one(make_world(needs + name, 16, 2, 400, 3)),
        same(make_world(needs + name, 16, 2, 400, 3)),
        other(make_world(needs + name, 16, 2, 400, 4));
    std::vector<Flow> all, incast;
    for (int h = 0; h < 16; ++h) {
      all.push_back({{h, 0}, {(h + 5) % 16, 0}});
      if (h > 0) incast.push_back({{h, 0}, {0, 0}});
    }
    for (int i = 0; i < 10; ++i)
      for (const auto& flows : {all, incast}) {
        const auto a = rates_of(one, flows), b = rates_of(same, flows), c = rates_of(other, flows);
        EXPECT_EQ(a[0].window_gbps, b[0].window_gbps) << name;
        EXPECT_EQ(*a[0].retransmits, *b[0].retransmits) << name;
        EXPECT_NE(a[0].window_gbps, c[0].window_gbps) << name;
      }
    EXPECT_LE(one.fullest_link(), 1 + 1e-9) << name;
    EXPECT_GT(one.fullest_link(), 0.9) << name;
  }
}

TEST(World, KeepsItsOtherPartsWhereOneIsAdded) {
  const SimWorld one = make_world("slow-port", 16, 2, 400, 9);
  const SimWorld both = make_world("slow-port+lossy-port", 16, 2, 400, 9);
  EXPECT_EQ(line_of(one.effects[0]), line_of(both.effects[0]));
  EXPECT_NE(both.effects[0].port.host, both.effects[1].port.host);
}

std::string refusal(const std::string& name, int hosts = 16, int rails = 2) {
  try {
    make_world(name, hosts, rails, 400, 1);
  } catch (const Error& e) {
    return e.what();
  }
  return "";
}

TEST(World, RefusesWhatItCannotMake) {
  EXPECT_THAT(refusal("closs"), HasSubstr("no part is called \"closs\""));
  EXPECT_THAT(refusal("closs"), HasSubstr("clos spray"));
  EXPECT_THAT(refusal("clos+"), HasSubstr("no part is called \"\""));
  EXPECT_THAT(refusal("lossy-uplink"), HasSubstr("add clos"));
  EXPECT_THAT(refusal("slow-member"), HasSubstr("needs bonded"));
  EXPECT_THAT(refusal("slow-rail", 16, 1), HasSubstr("--rails 2"));
  EXPECT_THAT(refusal("slow-path+spells", 4), HasSubstr("--hosts 5 or more"));
  EXPECT_EQ(refusal("slow-path+spells", 5), "");
  WorldFabric fabric(make_world("noise", 4, 1, 400, 1));
  EXPECT_THROW(rates_of(fabric, {{{0, 0}, {1, 1}}}), Error);
}

}  // namespace
}  // namespace weft::fabric
