// Ambiguous counters: saturated, wrapped, reset, N/A, unreadable, missing.
#include "perf/validate/checks/counters.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cctype>
#include <ostream>
#include <string>
#include <utility>

#include "perf/validate/checks/fleet.h"

namespace weft::fabric::checking {
namespace {

constexpr std::uint64_t k32 = (1ULL << 32) - 1;

// A counter, the check that uses it, and its two readings.
struct TwoReadings {
  const char* counter;
  const char* id;
  Reading before, after;
  enum { kSilent, kFound, kUnknown } expected;
  double value = 0;

  friend void PrintTo(const TwoReadings& c, std::ostream* out) {
    const auto text = [](const Reading& r) {
      return r.state == ReadingState::kValue          ? fmt::format("{}", r.value)
             : r.state == ReadingState::kNotAvailable ? "not_available"
             : r.state == ReadingState::kUnreadable   ? "unreadable"
                                                      : "gone";
    };
    *out << c.counter << " from " << text(c.before) << " to " << text(c.after);
  }
};

Reading value(std::uint64_t number) { return {ReadingState::kValue, number}; }
constexpr Reading kNa = {ReadingState::kNotAvailable, 0};
constexpr Reading kBroken = {ReadingState::kUnreadable, 0};
constexpr Reading kGone = {};

class CounterStates : public ::testing::TestWithParam<TwoReadings> {};

TEST_P(CounterStates, AreJudgedAsWhatTheyAre) {
  const TwoReadings& c = GetParam();
  Fleet fleet = healthy_fleet(FleetKind::kInfiniband);
  fleet.port(1, 1).before[c.counter] = c.before;
  fleet.port(1, 1).after[c.counter] = c.after;
  const std::vector<Finding> findings = that_weigh(fleet.judged());
  if (c.expected == TwoReadings::kSilent) {
    EXPECT_EQ(in_short(findings), "");
    return;
  }
  ASSERT_EQ(findings.size(), 1u) << in_short(findings);
  const Finding& finding = findings.front();
  EXPECT_EQ(finding.id, c.id);
  EXPECT_EQ(finding.where.host, "h1");
  EXPECT_EQ(finding.where.rail, 1);
  EXPECT_EQ(finding.unknown, c.expected == TwoReadings::kUnknown);
  if (c.expected == TwoReadings::kFound && finding.unit == Unit::kCount) {
    EXPECT_EQ(finding.value, c.value);
  }
  EXPECT_EQ(verdict_of(findings), finding.unknown ? Verdict::kUnknown : Verdict::kCritical);
}

INSTANTIATE_TEST_SUITE_P(
    All, CounterStates,
    ::testing::Values(
        // A counter that stayed at its ceiling is no evidence; one that reached it is.
        TwoReadings{"ib.link_downed", "link-flaps", value(255), value(255), TwoReadings::kSilent},
        TwoReadings{"ib.link_downed", "link-flaps", value(254), value(255), TwoReadings::kFound, 1},
        TwoReadings{"ib.port_xmit_discards", "discards", value(65535), value(65535),
                    TwoReadings::kSilent},
        TwoReadings{"ib.excessive_buffer_overrun_errors", "bit-errors", value(14), value(15),
                    TwoReadings::kFound, 1},
        // Queue counters of 32 bits wrap.
        TwoReadings{"hw.local_ack_timeout_err", "timeouts", value(k32 - 1), value(3),
                    TwoReadings::kFound},
        TwoReadings{"hw.packet_seq_err", "retransmits", value(k32), value(k32),
                    TwoReadings::kSilent},
        // A counter that fell and does not wrap was reset: its events since then have happened.
        TwoReadings{"ib.symbol_error", "bit-errors", value(900), value(2), TwoReadings::kFound, 2},
        TwoReadings{"ib.symbol_error", "bit-errors", value(900), value(0), TwoReadings::kUnknown},
        TwoReadings{"ib.symbol_error", "bit-errors", kNa, kNa, TwoReadings::kUnknown},
        TwoReadings{"ib.symbol_error", "bit-errors", kBroken, kBroken, TwoReadings::kUnknown},
        TwoReadings{"ib.symbol_error", "bit-errors", value(0), kGone, TwoReadings::kUnknown},
        TwoReadings{"ib.symbol_error", "bit-errors", value(7), value(7), TwoReadings::kSilent},
        // Other counters of the same check exist.
        TwoReadings{"ib.symbol_error", "bit-errors", kGone, kGone, TwoReadings::kSilent}),
    [](const auto& info) {
      std::string name = ::testing::PrintToString(info.param);
      for (char& c : name)
        if (!std::isalnum(static_cast<unsigned char>(c))) c = '_';
      return name;
    });

TEST(Counters, AFullOneIsANote) {
  Fleet fleet = healthy_fleet(FleetKind::kInfiniband);
  fleet.port(1, 1).before["ib.link_downed"] = fleet.port(1, 1).after["ib.link_downed"] = value(255);
  const std::vector<Finding> all = fleet.judged().findings;
  const auto note = std::ranges::find(all, "link-flaps", &Finding::id);
  ASSERT_NE(note, all.end());
  EXPECT_TRUE(note->unknown);
  EXPECT_EQ(note->severity, Severity::kInfo);
  EXPECT_EQ(note->text, "ib.link_downed was saturated before the run");
  EXPECT_EQ(verdict_of(all), Verdict::kOk);
  // Another counter of the check gives evidence.
  fleet.move(1, 1, "net.carrier_changes", 2);
  EXPECT_EQ(in_short(that_weigh(fleet.judged())), "link-flaps h1/r1>\n");
}

TEST(Counters, MissingOnesAreUnknownWhereTheDeviceShouldHaveThem) {
  Fleet fleet = healthy_fleet(FleetKind::kInfiniband);
  for (Readings* readings : {&fleet.port(2, 0).before, &fleet.port(2, 0).after})
    std::erase_if(*readings, [](const auto& entry) { return entry.first.starts_with("hw."); });
  const std::vector<Finding> findings = that_weigh(fleet.judged());
  EXPECT_EQ(verdict_of(findings), Verdict::kUnknown);
  for (const char* id : {"retransmits", "out-of-sequence", "timeouts", "rnr"})
    EXPECT_EQ(std::ranges::count(findings, id, &Finding::id), 1) << id;
  EXPECT_EQ(findings.size(), 4u) << in_short(findings);
}

TEST(Counters, MissingOnesOfPlainInterfacesAreNothing) {
  Fleet fleet = healthy_fleet(FleetKind::kPlain);
  for (HostFacts& host : fleet.facts.hosts)
    for (PortFacts& port : host.ports) port.before = port.after = {};
  EXPECT_EQ(in_short(that_weigh(fleet.judged())), "");
}

TEST(Counters, WhatNoPortHasIsOneFindingOfTheFleet) {
  Fleet fleet = healthy_fleet(FleetKind::kRoce);
  for (HostFacts& host : fleet.facts.hosts)
    for (PortFacts& port : host.ports)
      for (Readings* readings : {&port.before, &port.after})
        readings->erase("hw.rx_icrc_encapsulated");
  const std::vector<Finding> findings = that_weigh(fleet.judged());
  ASSERT_EQ(in_short(findings), "icrc-errors? /r-1>\n");
  EXPECT_EQ(findings[0].where.kind, PlaceKind::kFleet);
}

// One counter of each kernel driver: its check finds the change.
TEST(Counters, OfOtherMakesBelongToTheirChecks) {
  constexpr std::pair<const char*, const char*> kCounters[] = {
      {"hw.seq_err_naks_rcvd", "retransmits"},
      {"hw.retrans_pkts", "retransmits"},
      {"hw.req_rx_pkt_seq_err", "retransmits"},
      {"hw.tcpRetransSegs", "retransmits"},
      {"hw.to_retransmits", "timeouts"},
      {"hw.retrans_timeout_events", "timeouts"},
      {"hw.req_tx_retry_excd_err", "timeouts"},
      {"hw.rnr_naks_rcvd", "rnr"},
      {"hw.resp_rx_outof_buf", "rnr"},
      {"hw.rx_roce_discards", "discards"},
      {"hw.rx_drops", "discards"},
      {"hw.ip4InDiscards", "discards"},
      {"eth.rx_fcs_err_frames", "crc-errors"},
      {"eth.rx_crc_errors.nic", "crc-errors"},
      {"eth.rx_pcs_symbol_err", "bit-errors"},
      {"hw.RcResend", "retransmits"},
      {"hw.RcTimeOut", "timeouts"},
      {"hw.RnrNak", "rnr"},
      {"hw.PktDrop", "discards"},
      {"hw.rx_err_pkt", "discards"},
      {"fec.uncorrectable_blocks", "bit-errors"},
      {"mlxlink.effective_errors", "bit-errors"},
      {"hw.cnpIgnored", "cnp-ignored"}};
  for (const auto& [counter, id] : kCounters) {
    Fleet fleet = healthy_fleet(FleetKind::kRoce);
    PortFacts& port = fleet.port(1, 1);
    port.driver = "other";
    port.device = "other_0";
    for (Readings* readings : {&port.before, &port.after})
      std::erase_if(*readings, [](const auto& entry) { return !entry.first.starts_with("net."); });
    port.before[counter] = port.after[counter] = value(7);
    const auto told = [&fleet](const char* check) {
      const std::vector<Finding> all = that_weigh(fleet.judged());
      return std::ranges::count(all, check, &Finding::id);
    };
    EXPECT_EQ(told(id), 0) << counter;
    fleet.move(1, 1, counter, 3);
    EXPECT_EQ(told(id), 1) << counter;
  }
}

TEST(Counters, RatesHaveIntervals) {
  Fleet fleet = healthy_fleet(FleetKind::kInfiniband);
  fleet.move(1, 0, "ib.port_rcv_errors", 100);
  const std::vector<Finding> findings = that_weigh(fleet.judged());
  ASSERT_EQ(in_short(findings), "crc-errors h1/r0>\n");
  EXPECT_EQ(findings[0].unit, Unit::kPerPacket);
  EXPECT_DOUBLE_EQ(findings[0].value, 1e-5);
  EXPECT_NEAR(findings[0].low, 8.22e-6, 1e-7);  // Wilson, 95 %
  EXPECT_NEAR(findings[0].high, 1.216e-5, 1e-7);
}

}  // namespace
}  // namespace weft::fabric::checking
