// Attribution if both ends of a flow contradict each other, and cases that are no contradiction.
#include <gtest/gtest.h>

#include "perf/validate/checks/fleet.h"

namespace weft::fabric::checking {
namespace {

Fleet honest_fleet() {
  Fleet fleet = healthy_fleet(FleetKind::kPlain);
  fleet.each(Probe::kRate, [](FlowSample& s) {
    s.bytes = 1'000'000'000;
    s.sent_bytes = 1'002'000'000;
  });
  return fleet;
}

std::vector<Finding> reports(const Fleet& fleet) {
  std::vector<Finding> findings;
  for (const Finding& finding : fleet.judged().findings)
    if (finding.id == "false-report") findings.push_back(finding);
  return findings;
}

TEST(FalseReports, AReceiverMayGetLessThanWasSent) {
  Fleet fleet = honest_fleet();
  fleet.each(Probe::kRate, [](FlowSample& s) { s.bytes = 1000; });
  EXPECT_TRUE(reports(fleet).empty());
}

// h2 exaggerates its receive rate, or understates what it sent: the other hosts agree.
TEST(FalseReports, WhoContradictsAllOthersIsNamed) {
  for (const bool sends : {false, true}) {
    Fleet fleet = honest_fleet();
    fleet.each(Probe::kRate, [&](FlowSample& s) {
      if (!sends && s.flow.to.host == 2) s.bytes *= 3;
      if (sends && s.flow.from.host == 2) s.sent_bytes = 1;
    });
    const std::vector<Finding> found = reports(fleet);
    ASSERT_EQ(found.size(), 1u);
    EXPECT_EQ(found[0].where.kind, PlaceKind::kHost);
    EXPECT_EQ(found[0].where.host, "h2");
    EXPECT_GT(found[0].value, found[0].expected);
    EXPECT_EQ(verdict_of(fleet.judged().findings), Verdict::kCritical);
  }
}

TEST(FalseReports, OfTwoHostsThatContradictOnlyEachOtherBothAreNamed) {
  Fleet fleet = honest_fleet();
  fleet.each(Probe::kRate, [](FlowSample& s) {
    if (s.flow.from.host == 1 && s.flow.to.host == 3) s.bytes *= 2;
  });
  const std::vector<Finding> found = reports(fleet);
  ASSERT_EQ(found.size(), 1u);
  EXPECT_EQ(found[0].where.kind, PlaceKind::kPath);
  EXPECT_EQ(found[0].where.host, "h1");
  EXPECT_EQ(found[0].where.peer, "h3");
}

TEST(FalseReports, AReportThatIsNoneExplainsWhatWasNotMeasuredThere) {
  Fleet fleet = honest_fleet();
  fleet.samples.false_reports = {{"h1", -1, "samples", "parse error"},
                                 {"h1", 1, "facts", "mtu -1"}};
  std::erase_if(fleet.samples.flows,
                [](const FlowSample& s) { return s.flow.to.host == 1 || s.flow.from.host == 1; });
  const std::vector<Finding> found = reports(fleet);
  ASSERT_EQ(found.size(), 1u) << "one host, one finding";
  EXPECT_EQ(found[0].where.host, "h1");
  EXPECT_GE(found[0].evidence.size(), 2u);
  for (const Finding& finding : fleet.judged().findings)
    if (finding.id == "port-not-measured") {
      EXPECT_EQ(finding.explained_by, "false-report");
    }
}

// A reset affects all counters of an interface.
TEST(FalseReports, ACounterThatFallsAloneIsNoReset) {
  Fleet fleet = honest_fleet();
  PortFacts& port = fleet.port(2, 1);
  const auto set = [&](const char* name, std::uint64_t before, std::uint64_t after) {
    port.before[name] = {ReadingState::kValue, before};
    port.after[name] = {ReadingState::kValue, after};
  };
  set("net.rx_bytes", 5'000'000, 9'000'000);
  set("net.tx_bytes", 5'000'000, 9'000'000);
  set("net.rx_packets", 80'000, 2'000);
  const std::vector<Finding> found = reports(fleet);
  ASSERT_EQ(found.size(), 1u);
  EXPECT_EQ(found[0].where.host, "h2");
  EXPECT_EQ(found[0].where.rail, 1);
  EXPECT_EQ(found[0].severity, Severity::kWarn);
  for (auto& [name, reading] : port.after)
    if (name.starts_with("net.") && port.before[name].value >= 1000) reading.value = 0;
  EXPECT_TRUE(reports(fleet).empty());
}

}  // namespace
}  // namespace weft::fabric::checking
