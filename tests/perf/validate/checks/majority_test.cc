// Settings that should agree: which host is named among one, two or three hosts.
#include <gtest/gtest.h>

#include "perf/validate/checks/check.h"
#include "perf/validate/checks/fleet.h"

namespace weft::fabric::checking {
namespace {

TEST(Majority, OneHostIsAlikeToItself) {
  Fleet fleet = healthy_fleet(FleetKind::kPlain, 1, 1);
  fleet.port(0).mtu = 1500;
  for (const Finding& finding : fleet.judged().findings) EXPECT_NE(finding.id, "mtu");
}

TEST(Majority, OfTwoHostsBothAreNamedAndNeitherIsBlamed) {
  Fleet fleet = healthy_fleet(FleetKind::kPlain, 2, 2);
  fleet.port(1, 1).mtu = 1500;
  const std::vector<Finding> findings = that_weigh(fleet.judged());
  ASSERT_EQ(in_short(findings), "mtu /r1>\n");
  EXPECT_EQ(findings[0].where.kind, PlaceKind::kRail);
  std::vector<std::string> named;
  for (const Evidence& one : findings[0].evidence)
    if (one.unit == Unit::kText) named.push_back(one.host + " " + one.text);
  EXPECT_EQ(named, (std::vector<std::string>{"h0 9000", "h1 1500"}));
}

TEST(Majority, OfThreeHostsTheOddOneIsNamed) {
  Fleet fleet = healthy_fleet(FleetKind::kPlain, 3, 2);
  fleet.port(1, 1).mtu = 1500;
  const std::vector<Finding> findings = that_weigh(fleet.judged());
  ASSERT_EQ(in_short(findings), "mtu h1/r1>\n");
  EXPECT_EQ(findings[0].value, 1500);
  EXPECT_EQ(findings[0].expected, 9000);
  EXPECT_EQ(findings[0].unit, Unit::kBytes);
  EXPECT_NEAR(findings[0].score, 2.0 / 3, 1e-9);
}

TEST(Majority, ThreeValuesOfThreeHostsAreATie) {
  Fleet fleet = healthy_fleet(FleetKind::kInfiniband, 3, 1);
  fleet.port(1).firmware = "28.36.1010";
  fleet.port(2).firmware = "28.40.0000";
  const std::vector<Finding> findings = that_weigh(fleet.judged());
  ASSERT_EQ(findings.size(), 1u) << in_short(findings);
  EXPECT_EQ(findings[0].where.kind, PlaceKind::kFleet);
}

TEST(Majority, ThePolicyDecidesATie) {
  Fleet fleet = healthy_fleet(FleetKind::kInfiniband, 2, 1);
  fleet.port(1).firmware = "28.36.1010";
  fleet.policy.firmware["MT_0000000838"] = "28.36.1010";
  EXPECT_EQ(in_short(that_weigh(fleet.judged())), "firmware h0/r0>\n");
}

TEST(Majority, ThePolicyStandsAboveTheMajority) {
  Fleet fleet = healthy_fleet(FleetKind::kPlain, 3, 1);
  fleet.policy.mtu = 1500;
  fleet.port(2).mtu = 1500;
  const std::vector<Finding> findings = that_weigh(fleet.judged());
  EXPECT_EQ(in_short(findings), "mtu h0/r0>\nmtu h1/r0>\n");
}

TEST(Majority, RailsAreComparedEachByItself) {
  Fleet fleet = healthy_fleet(FleetKind::kPlain, 4, 2);
  for (int h = 0; h < 4; ++h) fleet.port(h, 1).mtu = 1500;
  EXPECT_EQ(in_short(that_weigh(fleet.judged())), "");
}

TEST(Majority, APortThatAdvertisesLessThanTheOthersIsAWarning) {
  Fleet fleet = healthy_fleet(FleetKind::kInfiniband, 3, 1);
  fleet.port(1).rate_gbps = fleet.port(1).most_rate_gbps = 200;
  const std::vector<Finding> findings = that_weigh(fleet.judged());
  ASSERT_EQ(in_short(findings), "link-rate h1/r0>\n");
  EXPECT_EQ(findings[0].severity, Severity::kWarn);
  fleet.policy.rail_rate_gbps[0] = 400;
  EXPECT_EQ(that_weigh(fleet.judged())[0].severity, Severity::kFatal);
}

TEST(Majority, AHostOfAnotherKindIsInformation) {
  Fleet fleet = healthy_fleet(FleetKind::kInfiniband, 4, 2);
  for (PortFacts& port : fleet.host(1).ports) port.rate_gbps = port.most_rate_gbps = 200;
  EXPECT_EQ(in_short(that_weigh(fleet.judged())), "");
  fleet.port(1, 1).rate_gbps = fleet.port(1, 1).most_rate_gbps = 400;  // one port, then
  EXPECT_EQ(in_short(that_weigh(fleet.judged())), "link-rate h1/r0>\n");
}

TEST(Majority, AHostThatNamesFewerRailsMeansIt) {
  Fleet fleet = healthy_fleet(FleetKind::kPlain, 4, 2);
  fleet.host(2).ports.pop_back();
  EXPECT_NE(in_short(that_weigh(fleet.judged())).find("rails-differ h2"), std::string::npos);
  fleet.host(2).names_rails = true;
  EXPECT_EQ(in_short(that_weigh(fleet.judged())).find("rails-differ"), std::string::npos);
}

TEST(Addresses, OneInterfaceOfTwoEmulatedHostsIsNoDuplicate) {
  Fleet fleet = healthy_fleet(FleetKind::kPlain, 2, 1);
  for (int h = 0; h < 2; ++h) {
    fleet.host(h).emulated = fleet.hosts[static_cast<std::size_t>(h)].emulated = true;
    fleet.port(h).address = "10.0.0.1";
    fleet.port(h).mac = "02:00:00:00:00:01";
  }
  EXPECT_EQ(in_short(that_weigh(fleet.judged())), "");
  fleet.port(1).mac = "02:00:00:00:00:02";  // two interfaces, then
  const std::vector<Finding> findings = that_weigh(fleet.judged());
  ASSERT_EQ(in_short(findings), "duplicate-address h0/r0>\nduplicate-address h1/r0>\n");
  EXPECT_EQ(findings[0].text, "ip 10.0.0.1");
  EXPECT_EQ(findings[0].evidence.front().text, "02:00:00:00:00:02");
  EXPECT_EQ(findings[1].evidence.front().text, "02:00:00:00:00:01");
}

TEST(Addresses, ClonedMachinesShareAllOfThem) {
  Fleet fleet = healthy_fleet(FleetKind::kRoce, 3, 1);
  fleet.port(2) = fleet.port(0);
  const std::vector<Finding> findings = that_weigh(fleet.judged());
  EXPECT_EQ(in_short(findings), "duplicate-address h0/r0>\nduplicate-address h2/r0>\n");
}

}  // namespace
}  // namespace weft::fabric::checking
