// Weak samples: waits for cores, load, and isolated events lead to no finding.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "perf/validate/checks/fleet.h"
#include "perf/validate/locate/locate.h"

namespace weft::fabric::checking {
namespace {

using enum FleetKind;

// Flows of one machine's cores with undeclared rates: among the flows that waited, the fast flows
// are as uncertain as the slow ones.
TEST(Registry, AFleetWhoseFlowsWaitedForCoresIsNotCalledHealthy) {
  Fleet fleet = healthy_fleet(kPlain);
  for (FleetHost& host : fleet.hosts)
    for (PortInfo& port : host.ports) port.expected_gbps = 0;
  EXPECT_EQ(verdict_of(fleet.judged().findings), Verdict::kOk);
  int n = 0;
  fleet.each(Probe::kRate, [&n](FlowSample& s) {
    if (n++ % 8 == 0) return;
    s.sender_starved = s.receiver_starved = 0.3;
    s.window_gbps.assign(6, 200 + n % 8);
  });
  const Judgement judged = fleet.judged();
  EXPECT_EQ(verdict_of(judged.findings), Verdict::kTester) << in_short(judged.findings);
}

TEST(Registry, APortThatLosesManyPacketsOfAnIncastIsNotLikeTheOthers) {
  Fleet fleet = healthy_fleet(kPlain, 6, 1);
  fleet.samples.rounds.push_back({Probe::kIncast, {}});
  const auto add = [&](int to, std::uint64_t lost) {
    for (int from = 0; from < 6; ++from) {
      if (from == to) continue;
      FlowSample sample;
      sample.round = static_cast<int>(fleet.samples.rounds.size()) - 1;
      sample.flow = {{from, 0}, {to, 0}};
      sample.window_gbps.assign(6, 78);
      sample.packets = 10'000;
      sample.retransmits = lost;
      fleet.samples.flows.push_back(sample);
    }
  };
  for (int to = 1; to < 6; ++to) add(to, to == 3 ? 400 : 6);
  EXPECT_EQ(in_short(that_weigh(fleet.judged())), "") << "one incast may have met bad luck";
  fleet.samples.rounds.push_back({Probe::kIncast, {}});
  add(3, 300);
  const std::vector<Finding> findings = that_weigh(fleet.judged());
  ASSERT_EQ(findings.size(), 1U) << in_short(findings);
  EXPECT_EQ(findings[0].id, "congestion-loss");
  EXPECT_EQ(findings[0].where.host, "h3");
  EXPECT_EQ(findings[0].where.direction, Direction::kReceive);
  EXPECT_NEAR(findings[0].value, 0.035, 1e-9);
}

// Stops explain the rate lost during them, and the same amount again.
TEST(Registry, ATesterThatStoodStillExplainsAsMuchOfARateAndNoMore) {
  const auto found = [](double gbps) {
    Fleet fleet = healthy_fleet(kPlain);
    fleet.host(1).stops = {20, 2, 0.05, 40};  // a tenth of the time
    Cause path;
    path.kind = CauseKind::kRate;
    path.place = CausePlace::kPath;
    path.port = {2, 0};
    path.peer = {1, 0};
    path.value = gbps;
    path.expected = 400;
    path.confidence = 0.9;
    fleet.causes = {path};
    const Judgement judgement = fleet.judged();
    return std::pair(in_short(that_weigh(judgement)), verdict_of(judgement.findings));
  };
  EXPECT_EQ(found(340), std::pair(std::string("tester-starved h1/r-1>\n"), Verdict::kTester));
  EXPECT_EQ(found(200).second, Verdict::kCritical);
}

TEST(Registry, AHostThatAloneWaitsForCoresIsASlowTester) {
  const auto verdict = [](double own, double others) {
    Fleet fleet = healthy_fleet(kPlain);
    fleet.each(Probe::kLatency, [&](FlowSample& s) {
      s.sender_starved = s.flow.from.host == 2 ? own : others;
      s.receiver_starved = s.flow.to.host == 2 ? own : others;
    });
    const std::vector<Finding> findings = that_weigh(fleet.judged());
    return in_short(findings);
  };
  EXPECT_EQ(verdict(0.9, 0.1), "tester-starved h2/r-1>\n");
  EXPECT_EQ(verdict(0.3, 0.05), "") << "streams bridge such waits";
  EXPECT_EQ(verdict(0.7, 0.6), "") << "hosts that share busy cores";
}

// Packets for one rail arrive at another, and the remedy does not mention cables.
TEST(Registry, RailsOfOneSubnetExplainPacketsThatComeInElsewhere) {
  const auto found = [](bool one_subnet) {
    Fleet fleet = healthy_fleet(kPlain);
    for (HostFacts& host : fleet.facts.hosts)
      for (PortFacts& port : host.ports) {
        port.subnet = one_subnet ? "10.0.0.0/16" : "10.0." + std::to_string(port.rail) + ".0/24";
        port.arp_for_all = true;
      }
    fleet.each(Probe::kReach, [](FlowSample& s) {
      if (s.flow.to.rail == 1) s.arrived_at = Port{s.flow.to.host, 0};
    });
    std::string first;
    for (const Finding& f : fleet.judged().findings) {
      if (f.unknown || f.severity <= Severity::kInfo || !f.explained_by.empty()) continue;
      first += f.id + " ";
    }
    return first;
  };
  EXPECT_EQ(found(true), "rails-one-subnet ");
  EXPECT_EQ(found(false).find("cables-swapped "), 0u) << found(false);
}

TEST(Registry, AHostThatNothingWasMeasuredAtIsNotJudgedForContradictions) {
  Fleet fleet = healthy_fleet(kPlain);
  const auto judged = [&] {
    for (const Coverage& row : fleet.judged().coverage)
      if (row.id == "false-report") return row.judged;
    return -1;
  };
  EXPECT_EQ(judged(), 4);
  fleet.samples = {};
  for (PortFacts& port : fleet.host(2).ports) port.before.clear();
  EXPECT_EQ(judged(), 3);
}

TEST(Registry, APortThatCannotReachItsOwnHostIsNoDeadLink) {
  Fleet fleet = healthy_fleet(kSoftRoce);
  fleet.each(Probe::kLoopback, [](FlowSample& s) {
    s.reached = false;
    s.error = "Connection timed out";
    s.window_gbps.clear();
  });
  EXPECT_EQ(in_short(that_weigh(fleet.judged())), "");
}

TEST(Registry, WhatALoadKeepsFromArrivingIsNoDeadLink) {
  Fleet fleet = healthy_fleet(kSoftRoce);
  fleet.each(Probe::kIncast, [](FlowSample& s) {
    s.reached = false;
    s.error = "messages did not complete";
    s.window_gbps.clear();
  });
  EXPECT_EQ(in_short(that_weigh(fleet.judged())), "");
  // A port that no probe reaches is dead.
  for (FlowSample& s : fleet.samples.flows) s.reached &= s.flow.to != Port{0, 0};
  EXPECT_NE(in_short(that_weigh(fleet.judged())).find("unreachable"), std::string::npos);
}

// Large messages of one port fail while small ones arrive: one finding of the port, none of its
// paths.
TEST(Registry, PathsThatAllLeaveOnePortAreOneFinding) {
  const auto found = [](bool all_peers) {
    Fleet fleet = healthy_fleet(kSoftRoce);
    fleet.each(Probe::kRate, [&](FlowSample& s) {
      if (s.flow.from != Port{2, 0} || (!all_peers && s.flow.to.host == 0)) return;
      s.reached = false;
      s.error = "transport retry counter exceeded";
    });
    std::vector<Where> places;
    for (const Finding& finding : fleet.judged().findings)
      if (finding.id == "unreachable") places.push_back(finding.where);
    return places;
  };
  const std::vector<Where> one = found(true);
  ASSERT_EQ(one.size(), 1U);
  EXPECT_EQ(one[0].kind, PlaceKind::kPort);
  EXPECT_EQ(one[0].host, "h2");
  EXPECT_EQ(one[0].rail, 0);
  EXPECT_EQ(one[0].direction, Direction::kTransmit);
  for (const Where& where : found(false)) EXPECT_EQ(where.kind, PlaceKind::kPath);
}

TEST(Registry, PingsThatWaitedForACoreAreNotJudged) {
  Fleet fleet = healthy_fleet(kSoftRoce);
  int n = 0;
  fleet.each(Probe::kLatency, [&n](FlowSample& s) { s.sender_starved = n++ % 4 == 0 ? 0.6 : 0; });
  const Judgement judgement = fleet.judged();
  const auto latency = std::ranges::find(judgement.coverage, "latency", &Coverage::id);
  ASSERT_NE(latency, judgement.coverage.end());
  EXPECT_EQ(latency->total, n);
  EXPECT_EQ(latency->judged, n - (n + 3) / 4);
}

// If nearly all pings waited, medians are the scheduler's. The fastest ping had no wait.
TEST(Registry, WhereAllPingsWaitedTheFastestTell) {
  Fleet fleet = healthy_fleet(kSoftRoce, 5);
  std::mt19937 random(7);
  fleet.each(Probe::kLatency, [&random](FlowSample& s) {
    s.sender_starved = 0.6;
    const double waits_us = std::uniform_real_distribution(100.0, 2000.0)(random);
    s.latency = LatencySample{50, 50, waits_us, 2 * waits_us, 3 * waits_us, 4 * waits_us};
  });
  EXPECT_TRUE(locate(fleet.hosts, fleet.samples, {}).empty());
  fleet.each(Probe::kLatency, [](FlowSample& s) {
    if (s.flow.from == Port{2, 1} || s.flow.to == Port{2, 1}) s.latency->min_us += 1000;
  });
  const std::vector<Cause> causes = locate(fleet.hosts, fleet.samples, {});
  ASSERT_EQ(causes.size(), 1U);
  EXPECT_EQ(causes[0].kind, CauseKind::kLatency);
  EXPECT_EQ(causes[0].place, CausePlace::kPort);
  EXPECT_EQ(causes[0].port, (Port{2, 1}));
}

TEST(Registry, AHostThatChangesDataIsOneFinding) {
  Fleet fleet = healthy_fleet(kPlain);
  for (const char* algorithm : {"ring", "direct", "flat"}) {
    CollectiveResult result{"all_reduce", algorithm, 20, 3, 0, "rank 1, chunk 2", 0, 0, ""};
    result.wrong_host = "h2";
    result.wrong_sends = true;
    fleet.collectives.push_back(result);
  }
  std::vector<Finding> found;
  for (const Finding& finding : fleet.judged().findings)
    if (finding.id == "collective-wrong") found.push_back(finding);
  ASSERT_EQ(found.size(), 1U);
  EXPECT_EQ(found[0].where.host, "h2");
  EXPECT_EQ(found[0].value, 9);
  EXPECT_EQ(std::ranges::count(found[0].evidence, "also", &Evidence::name), 2);
}

// A sender's waits for cores do not limit the rate while the device has queued messages.
TEST(Registry, AFullQueueOfRdmaProvesARateThoughItsSenderWaits) {
  const auto silent = [](double idle, double declared_gbps) {
    Fleet fleet = healthy_fleet(kSoftRoce);
    for (FleetHost& host : fleet.hosts)
      for (PortInfo& port : host.ports) port.expected_gbps = declared_gbps;
    fleet.each(Probe::kRate, [&](FlowSample& s) {
      s.sender_starved = 0.4;
      s.sender_idle = idle;
      s.receiver_limited.reset();
      for (double& gbps : s.window_gbps) gbps = 0.9;
    });
    const auto told = fleet.judged().findings;
    return std::ranges::count(told, "port-not-measured", &Finding::id) > 0;
  };
  EXPECT_FALSE(silent(0, 1));
  EXPECT_TRUE(silent(0.4, 1)) << "the queue ran empty";
  EXPECT_TRUE(silent(0, 0)) << "nobody declares what the cores allow";
}

TEST(Registry, AFewStopsOfAKernelThatHostsShareAreNoneOfTheTesters) {
  const auto told = [](bool emulated, double stopped_s, double throttled_s) {
    Fleet fleet = healthy_fleet(kSoftRoce);
    for (HostFacts& host : fleet.facts.hosts) host.emulated = emulated;
    Stops& stops = fleet.host(1).stops;
    stops.watched_s = 20;
    stops.stopped_s = stopped_s;
    stops.throttled_s = throttled_s;
    stops.count = 40;
    return in_short(that_weigh(fleet.judged())).find("tester-starved") != std::string::npos;
  };
  EXPECT_TRUE(told(false, 0.6, 0));
  EXPECT_FALSE(told(true, 0.6, 0));
  EXPECT_TRUE(told(true, 0.6, 0.6));
  EXPECT_TRUE(told(true, 1.2, 0));
}

// All flows of a fleet whose testers were stopped for a tenth of the time.
TEST(Registry, AFleetIsNotSlowWhereItsTestersStoodStill) {
  const auto told = [](double stopped_s, double left, int hosts) {
    Fleet fleet = healthy_fleet(kSoftRoce);
    for (int h = 0; h < hosts; ++h) {
      Stops& stops = fleet.host(h).stops;
      stops.watched_s = 20;
      stops.stopped_s = stopped_s;
      stops.count = 40;
    }
    fleet.each(Probe::kRate, [&](FlowSample& s) {
      for (double& gbps : s.window_gbps) gbps *= left;
    });
    return in_short(that_weigh(fleet.judged())).find("fleet-rate") != std::string::npos;
  };
  const int all = static_cast<int>(healthy_fleet(kSoftRoce).facts.hosts.size());
  EXPECT_FALSE(told(2.1, 0.85, all));
  EXPECT_TRUE(told(0, 0.85, all));
  EXPECT_TRUE(told(2.1, 0.6, all)) << "the stops do not explain as much";
  EXPECT_TRUE(told(2.1, 0.85, 1)) << "one host's stops do not slow the fleet";
}

TEST(Registry, ALabelThatStandsStillForAMomentIsNoBadPath) {
  Fleet fleet = healthy_fleet(kInfiniband);
  fleet.each(Probe::kEntropy, [](FlowSample& s) {
    if (s.flow.label == 5) s.window_gbps[1] = s.window_gbps[2] = 0;
  });
  EXPECT_EQ(in_short(that_weigh(fleet.judged())), "");
}

}  // namespace
}  // namespace weft::fabric::checking
