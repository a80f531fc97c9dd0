// Faults that are smaller, or have less evidence, than the faults of the registry's rows.
#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "perf/validate/checks/fleet.h"

namespace weft::fabric::checking {
namespace {

using enum Severity;

std::vector<Severity> told_by(const char* check, const Fleet& fleet) {
  std::vector<Severity> told;
  for (const Finding& finding : fleet.judged().findings)
    if (finding.id == check) told.push_back(finding.severity);
  return told;
}

TEST(Severity, APortThatIsUpWithoutACarrierHasNoLink) {
  Fleet fleet = healthy_fleet(FleetKind::kPlain);
  fleet.port(2).carrier = false;
  EXPECT_EQ(told_by("link-state", fleet), std::vector{kFatal});
}

TEST(Severity, ALinkThatIsSlowerThanTheOthersIsAWarningWhereNobodySaysWhatItShouldBe) {
  Fleet fleet = healthy_fleet(FleetKind::kRoce);
  fleet.policy.rate_gbps.reset();
  for (HostFacts& host : fleet.facts.hosts)
    for (PortFacts& port : host.ports) port.most_rate_gbps.reset();
  EXPECT_EQ(told_by("link-rate", fleet), std::vector<Severity>{});
  fleet.port(1, 1).rate_gbps = 200;
  EXPECT_EQ(told_by("link-rate", fleet), std::vector{kWarn});
}

TEST(Severity, AFleetWhoseStreamsEndBeforeItsPortsIsInformation) {
  Fleet fleet = healthy_fleet(FleetKind::kPlain);
  fleet.each(Probe::kRate, [](FlowSample& sample) {
    for (double& gbps : sample.window_gbps) gbps /= 2;
  });
  EXPECT_EQ(told_by("fleet-rate", fleet), std::vector{kFail});
  fleet.samples.one_stream_gbps = 3;
  EXPECT_EQ(told_by("fleet-rate", fleet), std::vector{Severity::kInfo});
}

TEST(Severity, PacketsMayOvertakeEachOtherWhereThePolicySaysSo) {
  Fleet fleet = healthy_fleet(FleetKind::kInfiniband);
  fleet.move(1, 1, "hw.out_of_sequence", 50);
  EXPECT_EQ(told_by("out-of-sequence", fleet), std::vector{kWarn});
  fleet.policy.adaptive_routing = true;
  EXPECT_EQ(told_by("out-of-sequence", fleet), std::vector{kInfo});
}

// Go-back-N with a window of 122 packets: 99 % at 1e-4, 89 % at 1e-3, 45 % at 1e-2.
TEST(Severity, ALinkThatLosesPacketsHasTheShareThatGoBackNLeaves) {
  Finding finding;
  finding.id = "loss";
  finding.unit = Unit::kPerPacket;
  for (const auto& [loss, left] : {std::pair(1e-4, 0.99), {1e-3, 0.89}, {1e-2, 0.45}}) {
    finding.value = loss;
    EXPECT_NEAR(share_left(finding), left, 0.005) << loss;
  }
  finding.id = "congestion";
  EXPECT_EQ(share_left(finding), 1);
}

TEST(Severity, WhatStandsIsJudgedAsWhatItIs) {
  Fleet fleet = healthy_fleet(FleetKind::kRoce);
  fleet.port(2, 0).gauges["devlink.ill"].value = 1;
  fleet.port(1, 0).switch_name = "leaf-of-another-pod";
  fleet.host(3).gpus = 0;
  fleet.port(3, 0).settings[2].second = "translates";
  EXPECT_EQ(told_by("nic-health", fleet), std::vector{kFail});
  EXPECT_EQ(told_by("rail-switch", fleet), std::vector<Severity>{});
  EXPECT_EQ(told_by("pcie-settings", fleet), std::vector{kInfo}) << "no GPU waits for these";
}

// A PCIe 5 card in a PCIe 4 slot.
TEST(Severity, ASlotMattersWhereItCannotCarryThePort) {
  Fleet fleet = healthy_fleet(FleetKind::kRoce);
  PortFacts& port = fleet.port(1, 1);
  port.pcie_speed = port.slot_most_speed = "16.0 GT/s PCIe";
  port.slot_most_width = 16;
  port.rate_gbps = port.most_rate_gbps = 200;
  EXPECT_EQ(told_by("pcie-link", fleet), std::vector<Severity>{});
  port.rate_gbps = port.most_rate_gbps = 400;
  EXPECT_EQ(told_by("pcie-link", fleet), std::vector{kWarn}) << "the slot carries 227 Gb/s";
  port.pcie_width = 8;
  EXPECT_EQ(told_by("pcie-link", fleet), std::vector{kFail}) << "less than card and slot can do";
}

TEST(Severity, ASingleLaneIsAFaultOnInfinibandAlone) {
  for (const auto& [kind, told] : {std::pair(FleetKind::kInfiniband, 8), {FleetKind::kRoce, 0}}) {
    Fleet fleet = healthy_fleet(kind);
    for (HostFacts& host : fleet.facts.hosts)
      for (PortFacts& port : host.ports) port.width_lanes = 1;
    const Check& check = *find_check("link-width");
    EXPECT_EQ(static_cast<int>(check.judge(check, fleet.observed()).findings.size()), told);
  }
}

TEST(Severity, ARailWhoseLinksAreSlowerThanLikePortsIsAFault) {
  Fleet fleet = healthy_fleet(FleetKind::kInfiniband);
  for (HostFacts& host : fleet.facts.hosts) {
    for (PortFacts& port : host.ports) port.most_rate_gbps.reset();
    host.ports[1].rate_gbps = 100;
  }
  EXPECT_EQ(told_by("link-width", fleet), std::vector(4, kFail));
  for (HostFacts& host : fleet.facts.hosts) host.ports[1].state = "1: DOWN";
  EXPECT_EQ(told_by("link-width", fleet), std::vector<Severity>{}) << "a down port has no rate";
}

TEST(Severity, OfALatencyFollowsFromTheFleets) {
  Fleet fleet = healthy_fleet(FleetKind::kPlain);
  Cause& cause = fleet.causes.emplace_back();
  cause.kind = CauseKind::kLatency;
  cause.place = CausePlace::kPort;
  cause.port = {2, 1};
  cause.expected = 3;
  cause.samples = 4;
  const Thresholds& limits = fleet.policy.thresholds;
  cause.value = 1.1 * limits.warn_latency * cause.expected;
  EXPECT_EQ(told_by("latency", fleet), std::vector{kWarn});
  cause.value = 1.1 * limits.fail_latency * cause.expected;
  EXPECT_EQ(told_by("latency", fleet), std::vector{kFail});
}

TEST(Severity, OfACollectiveIsAWarningOnlyWhereLinksHoldItUp) {
  Fleet fleet = healthy_fleet(FleetKind::kPlain);
  CollectiveResult& timed = fleet.collectives[0];
  timed.predicted_busbw_gbps = 300;
  timed.busbw_gbps = 100;
  timed.link_busbw_gbps = 320;
  EXPECT_EQ(told_by("busbw", fleet), std::vector{kWarn});
  timed.link_busbw_gbps = 3200;  // the model says that cores or latencies do
  EXPECT_EQ(told_by("busbw", fleet), std::vector{kInfo});
}

TEST(Severity, FirmwareIsComparedWithWhatThePolicyDeclares) {
  Fleet fleet = healthy_fleet(FleetKind::kInfiniband);
  const PortFacts& port = fleet.port(0);
  fleet.policy.firmware[*port.board] = *port.firmware;
  EXPECT_TRUE(told_by("firmware", fleet).empty());
  fleet.policy.firmware[*port.board] = "another";
  EXPECT_FALSE(told_by("firmware", fleet).empty())
      << "all ports are alike, and none is as declared";
}

TEST(Severity, APathIsAsLargeAsItsPortsOrIsNamed) {
  Fleet fleet = healthy_fleet(FleetKind::kPlain);
  const auto passes = [&](int bytes, int fails_from) {
    fleet.each(Probe::kPathMtu, [&](FlowSample& sample) {
      if (sample.flow.from != Port{1, 0} || sample.flow.to.rail != 0) return;
      sample.passed_mtu = bytes;
      sample.failed_mtu = fails_from;
    });
    return told_by("path-mtu", fleet);
  };
  const int mtu = *fleet.port(1).mtu;
  EXPECT_TRUE(passes(mtu, mtu + 1).empty());
  EXPECT_FALSE(passes(576, mtu).empty()) << "small ones pass, large ones do not";
  EXPECT_FALSE(passes(mtu - 1, mtu).empty());
}

TEST(Severity, ARateBetweenTheThresholdsIsAWarning) {
  Fleet fleet = healthy_fleet(FleetKind::kPlain);
  Cause& cause = fleet.causes.emplace_back();
  cause.kind = CauseKind::kRate;
  cause.place = CausePlace::kTransmit;
  cause.port = {2, 1};
  cause.expected = 100;
  cause.samples = 4;
  const Thresholds& limits = fleet.policy.thresholds;
  const auto at = [&](double share) {
    cause.value = share * cause.expected;
    return told_by("port-rate", fleet);
  };
  EXPECT_TRUE(at(limits.warn_rate).empty());
  EXPECT_EQ(at((limits.warn_rate + limits.fail_rate) / 2), std::vector{kWarn});
  EXPECT_EQ(at(0.99 * limits.fail_rate), std::vector{kFail});
}

// Kernel threads move the bytes of software RDMA, and flows do not see their waits for a core.
TEST(Severity, OfSoftwareRdmaOnOneKernelTheDeclaredRateAccuses) {
  const auto told = [](FleetKind kind, bool emulated, double declared_gbps) {
    Fleet fleet = healthy_fleet(kind);
    for (std::size_t h = 0; h < fleet.hosts.size(); ++h) {
      fleet.host(static_cast<int>(h)).emulated = emulated;
      for (PortInfo& port : fleet.hosts[h].ports) port.expected_gbps = declared_gbps;
    }
    Cause path;
    path.place = CausePlace::kPath;
    path.port = {0, 0};
    path.peer = {1, 0};
    path.expected = 1.5;
    path.value = 1.14;
    path.samples = 6;
    fleet.causes = {path};
    return told_by("path-rate", fleet);
  };
  EXPECT_EQ(told(FleetKind::kSoftRoce, true, 0), std::vector{kInfo});
  EXPECT_EQ(told(FleetKind::kSoftRoce, true, 1.5), std::vector{kFail});
  EXPECT_EQ(told(FleetKind::kSoftRoce, false, 0), std::vector{kFail}) << "each has its own kernel";
  EXPECT_EQ(told(FleetKind::kPlain, true, 0), std::vector{kFail}) << "a shaped interface";
}

TEST(Severity, OfADriftFollowsFromTheThresholds) {
  Fleet fleet = healthy_fleet(FleetKind::kPlain);
  const Thresholds& limits = fleet.policy.thresholds;
  const auto at = [&](const char* number, double now) {
    fleet.drift = {{std::string("port.a.rail.9.rail1.") + number, 100, now}};
    return told_by("drift", fleet);
  };
  EXPECT_TRUE(at("transmit_gbps", 130).empty()) << "better than before";
  EXPECT_EQ(at("transmit_gbps", 100 * (limits.warn_rate + limits.fail_rate) / 2),
            std::vector{kWarn});
  EXPECT_EQ(at("receive_gbps", 99 * limits.fail_rate), std::vector{kFail});
  EXPECT_EQ(at("p50_us", 101 * limits.fail_latency), std::vector{kFail});
  EXPECT_EQ(at("p99_us", 101 * limits.fail_latency), std::vector{kInfo});
  EXPECT_TRUE(at("p50_us", 50).empty());
  at("receive_gbps", 10);
  const Judgement judged = fleet.judged();
  const auto found = std::ranges::find(judged.findings, "drift", &Finding::id);
  ASSERT_NE(found, judged.findings.end());
  EXPECT_EQ(found->where.host, "a.rail.9");
  EXPECT_EQ(found->where.rail, 1);
  EXPECT_EQ(found->where.direction, Direction::kReceive);
  EXPECT_LT(found->score, 0.9) << "no node is drained for a change";
  EXPECT_EQ(verdict_of(judged.findings), Verdict::kCritical);
}

// A RoCE port at MTU 1024 carries 92.6 % of its rate as payload.
TEST(Severity, ADeclaredRateIsComparedWithoutHeaders) {
  constexpr double kPayload = 1024.0 / 1106;
  Fleet fleet = healthy_fleet(FleetKind::kRoce);
  fleet.policy.rate_gbps = 400;
  for (FleetHost& host : fleet.hosts)
    for (PortInfo& port : host.ports) port.expected_gbps = 400 * kPayload;
  const auto at = [&](double gbps) {
    for (FlowSample& sample : fleet.samples.flows) sample.window_gbps.assign(6, gbps);
    return told_by("fleet-rate", fleet);
  };
  EXPECT_TRUE(at(400 * kPayload).empty());
  EXPECT_FALSE(at(0.8 * 400 * kPayload).empty());
}

TEST(Severity, OutagesAreSkippedAndExplainedLikeAnyFinding) {
  Fleet fleet = healthy_fleet(FleetKind::kPlain);
  fleet.outages = {{1, "h0", "h1", false, "no answer"}, {1, "h0", "h2", false, "no answer"}};
  EXPECT_EQ(told_by("rail-out", fleet), std::vector{kFail});
  EXPECT_TRUE(told_by("no-failover", fleet).empty());
  fleet.policy.skipped_checks = {"rail-out"};
  EXPECT_TRUE(told_by("rail-out", fleet).empty());
}

TEST(Severity, AJobThatFailedWasNotJudgedToTheEnd) {
  Fleet fleet = healthy_fleet(FleetKind::kPlain);
  const auto judged = [&] {
    const Judgement all = fleet.judged();
    return std::ranges::find(all.coverage, "job-failed", &Coverage::id)->judged;
  };
  EXPECT_EQ(judged(), 1);
  fleet.failure = "rank 3 on host h1 was killed";
  EXPECT_EQ(judged(), 0);
}

}  // namespace
}  // namespace weft::fabric::checking
