// Loss by place and load: which is a fault, where, and how severe.
#include <gtest/gtest.h>

#include "perf/validate/checks/fleet.h"

namespace weft::fabric::checking {
namespace {

Cause loss_at(CausePlace place, Port port, double rate) {
  Cause cause;
  cause.kind = CauseKind::kLoss;
  cause.place = place;
  cause.port = port;
  cause.value = rate;
  cause.low = 0.8 * rate;
  cause.high = 1.2 * rate;
  cause.confidence = 0.95;
  return cause;
}

void lose(Fleet& fleet, Probe probe, Port from, std::uint64_t events) {
  fleet.each(probe, [&](FlowSample& s) {
    if (s.flow.from == from) s.retransmits = events;
  });
}

const Finding* find(const std::vector<Finding>& findings, std::string_view id) {
  const auto it = std::ranges::find(findings, id, &Finding::id);
  return it == findings.end() ? nullptr : &*it;
}

double evidence(const Finding& finding, std::string_view name) {
  const auto it = std::ranges::find(finding.evidence, name, &Evidence::name);
  return it == finding.evidence.end() ? -1 : it->value;
}

TEST(Loss, AtBothLoadsIsOfTheLink) {
  Fleet fleet = healthy_fleet(FleetKind::kPlain);
  fleet.causes = {loss_at(CausePlace::kTransmit, {1, 0}, 1e-4)};
  lose(fleet, Probe::kLowLoad, {1, 0}, 100);
  lose(fleet, Probe::kRate, {1, 0}, 120);
  const std::vector<Finding> findings = that_weigh(fleet.judged());
  ASSERT_EQ(in_short(findings), "loss h1/r0>\n");
  EXPECT_EQ(findings[0].severity, Severity::kFail);
  EXPECT_NEAR(evidence(findings[0], "loss_at_low_load"), 1e-4, 1e-12);
  EXPECT_NEAR(evidence(findings[0], "loss_at_full_load"), 1.2e-4, 1e-12);
  EXPECT_NEAR(findings[0].low, 0.8e-4, 1e-12);
}

TEST(Loss, BelowTheLimitWarns) {
  Fleet fleet = healthy_fleet(FleetKind::kPlain);
  fleet.causes = {loss_at(CausePlace::kTransmit, {1, 0}, 5e-6)};
  lose(fleet, Probe::kLowLoad, {1, 0}, 5);
  const std::vector<Finding> findings = that_weigh(fleet.judged());
  ASSERT_EQ(in_short(findings), "loss h1/r0>\n");
  EXPECT_EQ(findings[0].severity, Severity::kWarn);
}

// Losses are so rare everywhere that the localization names no place.
TEST(Loss, AboveWarnLossAndBelowTheFailingLevelIsAWarningWhereAskedFor) {
  Fleet fleet = healthy_fleet(FleetKind::kPlain);
  fleet.each(Probe::kLowLoad, [](FlowSample& s) {
    s.packets = 10'000'000;
    s.retransmits = 60;  // 6e-6 per packet
  });
  fleet.policy.thresholds.fail_loss = 1e-5;
  EXPECT_EQ(in_short(that_weigh(fleet.judged())), "");
  fleet.policy.thresholds.warn_loss = 2e-6;
  const std::vector<Finding> findings = that_weigh(fleet.judged());
  ASSERT_EQ(findings.size(), 1u) << in_short(findings);
  EXPECT_EQ(findings[0].id, "loss");
  EXPECT_EQ(findings[0].severity, Severity::kWarn);
  fleet.policy.thresholds.warn_loss = 9e-6;
  EXPECT_EQ(in_short(that_weigh(fleet.judged())), "");
}

TEST(Loss, OnlyUnderLoadIsCongestionAndNoFaultOfACable) {
  Fleet fleet = healthy_fleet(FleetKind::kPlain);
  fleet.causes = {loss_at(CausePlace::kTransmit, {1, 0}, 2e-3)};
  fleet.causes[0].loaded_only = true;
  lose(fleet, Probe::kRate, {1, 0}, 2000);
  const std::vector<Finding> findings = that_weigh(fleet.judged());
  ASSERT_EQ(in_short(findings), "congestion-loss h1/r0>\n");
  EXPECT_EQ(findings[0].severity, Severity::kWarn);
}

TEST(Loss, TooFewPacketsAtLowLoadDoNotMakeItCongestion) {
  Fleet fleet = healthy_fleet(FleetKind::kPlain);
  fleet.causes = {loss_at(CausePlace::kTransmit, {1, 0}, 1e-3)};
  lose(fleet, Probe::kRate, {1, 0}, 1000);
  fleet.each(Probe::kLowLoad, [](FlowSample& s) { s.packets = 500; });
  const std::vector<Finding> findings = that_weigh(fleet.judged());
  ASSERT_EQ(in_short(findings), "loss h1/r0>\n");
}

TEST(Loss, OfASlowPortUnderLoadIsByDesign) {
  Fleet fleet = healthy_fleet(FleetKind::kPlain);
  fleet.causes = {loss_at(CausePlace::kTransmit, {1, 0}, 2e-3),
                  loss_at(CausePlace::kTransmit, {1, 0}, 200)};
  fleet.causes[1].kind = CauseKind::kRate;
  fleet.causes[1].expected = 400;
  lose(fleet, Probe::kRate, {1, 0}, 2000);
  EXPECT_EQ(in_short(that_weigh(fleet.judged())), "port-rate h1/r0>\n");
}

TEST(Loss, OfAllUnderLoadIsHowTcpFindsItsRate) {
  Fleet fleet = healthy_fleet(FleetKind::kPlain);
  fleet.each(Probe::kRate, [](FlowSample& s) { s.retransmits = 3000; });
  fleet.each(Probe::kIncast, [](FlowSample& s) { s.retransmits = 90'000; });
  EXPECT_EQ(in_short(that_weigh(fleet.judged())), "");
}

TEST(Loss, OfOneRepeatAtLowLoadNobodyIsBlamed) {
  Fleet fleet = healthy_fleet(FleetKind::kPlain);
  lose(fleet, Probe::kLowLoad, {1, 0}, 1);
  EXPECT_EQ(in_short(that_weigh(fleet.judged())), "");
}

TEST(Loss, WithoutAPlaceIsOfTheFleet) {
  Fleet fleet = healthy_fleet(FleetKind::kPlain);
  fleet.each(Probe::kLowLoad, [](FlowSample& s) { s.retransmits = 200; });
  const std::vector<Finding> findings = that_weigh(fleet.judged());
  ASSERT_EQ(in_short(findings), "loss /r-1>\n");
  EXPECT_EQ(findings[0].where.kind, PlaceKind::kFleet);
}

TEST(Loss, OfALosslessClassFailsWhateverTheRate) {
  Fleet fleet = healthy_fleet(FleetKind::kPlain);
  fleet.policy.lossless = true;
  fleet.each(Probe::kRate, [](FlowSample& s) { s.retransmits = 0; });
  EXPECT_EQ(in_short(that_weigh(fleet.judged())), "");
  for (FlowSample& s : fleet.samples.flows)
    if (s.flow.from == Port{1, 0} && s.packets &&
        fleet.samples.rounds[static_cast<std::size_t>(s.round)].probe == Probe::kRate) {
      s.retransmits = 1;
      break;
    }
  const std::vector<Finding> findings = that_weigh(fleet.judged());
  const Finding* found = find(findings, "congestion-loss");
  ASSERT_NE(found, nullptr) << in_short(findings);
  EXPECT_EQ(found->severity, Severity::kFail);
  EXPECT_EQ(found->where.kind, PlaceKind::kPath);
  EXPECT_EQ(found->where.host, "h1");
}

// RDMA counters of ports: the lossy port is where one kind of event concentrates.
struct Seen {
  const char* name;
  std::vector<int> repeated, gaps;  // by host
  const char* host;
  Direction direction;
  const char* peer = "";

  friend void PrintTo(const Seen& seen, std::ostream* out) { *out << seen.name; }
};

class LossyPort : public ::testing::TestWithParam<Seen> {};

TEST_P(LossyPort, IsFoundByTheCountersOfAll) {
  const Seen& seen = GetParam();
  for (const FleetKind kind : {FleetKind::kInfiniband, FleetKind::kSoftRoce}) {
    const bool soft = kind == FleetKind::kSoftRoce;
    Fleet fleet = healthy_fleet(kind);
    for (int h = 0; h < 4; ++h) {
      const auto i = static_cast<std::size_t>(h);
      fleet.move(h, 1, soft ? "hw.rcvd_seq_err" : "hw.packet_seq_err",
                 static_cast<std::uint64_t>(seen.repeated[i]));
      fleet.move(h, 1, soft ? "hw.out_of_seq_request" : "hw.out_of_sequence",
                 static_cast<std::uint64_t>(seen.gaps[i]));
    }
    const std::vector<Finding> findings = that_weigh(fleet.judged());
    ASSERT_EQ(findings.size(), 1u) << in_short(findings);
    EXPECT_EQ(findings[0].id, "retransmits");
    EXPECT_EQ(findings[0].severity, Severity::kFail);
    EXPECT_EQ(findings[0].where.host, seen.host);
    EXPECT_EQ(findings[0].where.rail, 1);
    EXPECT_EQ(findings[0].where.direction, seen.direction);
    EXPECT_EQ(findings[0].where.peer, seen.peer);
    EXPECT_EQ(findings[0].unit, Unit::kPerPacket);
    EXPECT_GT(findings[0].low, 0);
  }
}

INSTANTIATE_TEST_SUITE_P(
    All, LossyPort,
    ::testing::Values(Seen{"sends", {0, 90, 0, 0}, {30, 0, 28, 32}, "h1", Direction::kTransmit},
                      Seen{"receives", {31, 0, 29, 30}, {0, 90, 0, 0}, "h1", Direction::kReceive},
                      Seen{"both", {30, 90, 30, 30}, {30, 90, 30, 30}, "h1", Direction::kBoth},
                      Seen{"few", {0, 0, 0, 1}, {0, 3, 0, 0}, "h1", Direction::kReceive},
                      Seen{"few_of_both", {1, 0, 0, 2}, {1, 2, 0, 2}, "h3", Direction::kBoth},
                      Seen{"fewer_out", {20, 20, 20, 10}, {10, 60, 0, 0}, "h1", Direction::kBoth},
                      Seen{"path", {0, 60, 0, 0}, {0, 0, 0, 60}, "h1", Direction::kTransmit, "h3"}),
    [](const auto& row) { return row.param.name; });

TEST(LossyPort, WithoutOneEachPortSaysWhatItSaw) {
  for (const std::uint64_t events : {10, 1}) {
    Fleet fleet = healthy_fleet(FleetKind::kInfiniband);
    for (int h = 0; h < 4; ++h) {
      fleet.move(h, 0, "hw.packet_seq_err", events);
      fleet.move(h, 0, "hw.out_of_sequence", events);
    }
    const std::vector<Finding> findings = that_weigh(fleet.judged());
    EXPECT_EQ(findings.size(), 4u) << in_short(findings);
    EXPECT_EQ(verdict_of(findings), Verdict::kCritical);
  }
}

// An acknowledgement after its timeout makes the sender retransmit data that has arrived.
TEST(LossyPort, LateAnswersOfSoftwareAreNoLosses) {
  Fleet fleet = healthy_fleet(FleetKind::kSoftRoce);
  for (int h = 0; h < 4; ++h) {
    fleet.move(h, 0, "hw.completer_retry_err", 10);
    fleet.move(h, 0, "hw.duplicate_request", 30'000);
  }
  EXPECT_EQ(in_short(that_weigh(fleet.judged())), "");
  const std::vector<Finding> told = fleet.judged().findings;
  EXPECT_EQ(std::ranges::count(told, "retransmits", &Finding::id), 4);
  // Losses counted by receivers are separate, and the only evidence.
  fleet.move(1, 0, "hw.rcvd_seq_err", 2'000);
  fleet.move(2, 0, "hw.out_of_seq_request", 1'000);
  fleet.move(3, 0, "hw.out_of_seq_request", 1'000);
  const std::vector<Finding> findings = that_weigh(fleet.judged());
  ASSERT_EQ(in_short(findings), "retransmits h1/r0>\n");
  EXPECT_NEAR(findings[0].value, 2'000 / 1e6, 1e-6);
}

TEST(LossyPort, AClassThatMayLoseIsJudgedByRate) {
  Fleet fleet = healthy_fleet(FleetKind::kInfiniband);
  fleet.policy.lossless = false;
  fleet.move(1, 0, "hw.packet_seq_err", 20);  // of 1e7 packets
  std::vector<Finding> findings = that_weigh(fleet.judged());
  ASSERT_EQ(in_short(findings), "retransmits h1/r0>\n");
  EXPECT_EQ(findings[0].severity, Severity::kWarn);
  fleet.move(1, 0, "hw.packet_seq_err", 2000);
  EXPECT_EQ(that_weigh(fleet.judged())[0].severity, Severity::kFail);
}

TEST(Discards, OutsideTheClassOnlyWarn) {
  Fleet fleet = healthy_fleet(FleetKind::kRoce);
  fleet.move(1, 0, "eth.rx_discards_phy", 20);
  EXPECT_EQ(that_weigh(fleet.judged())[0].severity, Severity::kWarn);
  fleet.move(1, 0, "eth.rx_prio3_discards", 1);
  EXPECT_EQ(that_weigh(fleet.judged())[0].severity, Severity::kFail);
}

TEST(Discards, OfPlainInterfacesAreJudgedByRate) {
  Fleet fleet = healthy_fleet(FleetKind::kPlain);
  fleet.move(1, 0, "net.rx_dropped", 20);  // of 1e7 packets
  EXPECT_EQ(in_short(that_weigh(fleet.judged())), "");
  fleet.move(1, 0, "net.rx_dropped", 20'000);
  const std::vector<Finding> findings = that_weigh(fleet.judged());
  ASSERT_EQ(in_short(findings), "discards h1/r0>\n");
  EXPECT_EQ(findings[0].severity, Severity::kWarn);
}

}  // namespace
}  // namespace weft::fabric::checking
