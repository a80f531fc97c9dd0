// Declared policies, and findings that explain others.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>

#include "perf/validate/checks/check.h"
#include "perf/validate/checks/fleet.h"
#include "perf/validate/facts/policy.h"
#include "support/process/read_file.h"
#include "tests/support/process/temporary_folder.h"

namespace weft::fabric::checking {
namespace {

// The policy in the page, as parsed by read_policy().
Policy policy_of_the_page() {
  const std::string page = read_file(WEFT_SOURCE_DIR "/docs/validate.md");
  const std::size_t at = page.find("```toml\n") + 8;
  const testing::TemporaryFolder folder;
  std::ofstream(folder / "fleet.toml") << page.substr(at, page.find("```", at) - at);
  return read_policy(folder / "fleet.toml");
}

TEST(Declared, ThePolicyOfThePagePassesOnAHealthyFleet) {
  Fleet fleet = healthy_fleet(FleetKind::kRoce);
  fleet.policy = policy_of_the_page();
  for (HostFacts& host : fleet.facts.hosts)
    for (PortFacts& port : host.ports) {
      port.firmware = fleet.policy.firmware.at(*port.board);
      port.dscp_map = {{26, 3}};
    }
  EXPECT_EQ(in_short(that_weigh(fleet.judged())), "");
}

TEST(Declared, WhatCannotBeReadIsUnknownAndNeverOk) {
  const auto unread = [](FleetKind kind, const auto& declare) {
    Fleet fleet = healthy_fleet(kind);
    declare(fleet.policy);
    std::string text;
    for (const Finding& finding : fleet.judged().findings)
      if (finding.id == "declared" && finding.unknown) text += finding.text;
    EXPECT_EQ(verdict_of(fleet.judged().findings), text.empty() ? Verdict::kOk : Verdict::kUnknown);
    return text;
  };
  EXPECT_EQ(unread(FleetKind::kPlain, [](Policy&) {}), "");
  EXPECT_EQ(unread(FleetKind::kPlain, [](Policy& p) { p.mtu = 9000; }), "");
  EXPECT_EQ(unread(FleetKind::kPlain, [](Policy& p) { p.pfc_priority = 3, p.dcqcn = true; }),
            "pfc_priority (read at 0 of 8 ports), dcqcn (read at 0 of 8 ports)");
  EXPECT_EQ(unread(FleetKind::kPlain, [](Policy& p) { p.rdma_mtu = 4096; }),
            "rdma_mtu (read at 0 of 8 ports)");
  EXPECT_EQ(unread(FleetKind::kRoce, [](Policy& p) { p.pfc_priority = 3, p.dcqcn = true; }), "");
  EXPECT_EQ(unread(FleetKind::kRoce, [](Policy& p) { p.firmware["another"] = "1"; }),
            "firmware (read at 0 of 8 ports)");
}

// The MTU of an interface and of its RDMA port.
TEST(Declared, TheTwoMtusHaveKeysOfTheirOwn) {
  Fleet fleet = healthy_fleet(FleetKind::kRoce);
  fleet.policy.mtu = 9000;
  fleet.policy.rdma_mtu = 4096;
  EXPECT_EQ(in_short(that_weigh(fleet.judged())), "");
  fleet.policy.rdma_mtu = 1024;
  EXPECT_THAT(in_short(that_weigh(fleet.judged())), ::testing::HasSubstr("mtu "));
}

// Swapped cables of h5 also explain why its other port is not reached.
TEST(Explain, SwappedCablesAreTheCauseOfWhatIsNotReached) {
  Finding swapped, silent;
  swapped.id = "cables-swapped";
  swapped.severity = Severity::kFail;
  swapped.where = {PlaceKind::kPort, "h5", 0, Direction::kBoth, "", ""};
  swapped.evidence = {{"swapped_with", "h5", 1, 0, 0, Unit::kText, ""}};
  silent.id = "unreachable";
  silent.severity = Severity::kFatal;
  silent.where = {PlaceKind::kPath, "h1", 1, Direction::kTransmit, "h5", ""};
  std::vector<Finding> findings = {silent, swapped, silent};
  findings[2].where.host = "h6", findings[2].where.peer = "h7";  // unrelated to these
  explain(findings);
  EXPECT_EQ(findings[0].explained_by, "cables-swapped");
  EXPECT_EQ(findings[0].reason, 1);
  EXPECT_EQ(findings[2].reason, -1);
  // A cause takes the severity of what it explains, and its index follows the finding.
  findings[2].severity = Severity::kWarn;
  sort_heaviest_first(findings);
  EXPECT_EQ(findings[0].id, "cables-swapped");
  for (const Finding& finding : findings)
    EXPECT_EQ(finding.reason, finding.explained_by == "cables-swapped" ? 0 : -1);
}

TEST(Explain, CausesComeInTheOrderOfTheirCost) {
  const auto rate = [](const char* host, double gbps) {
    Finding finding;
    finding.id = "port-rate";
    finding.severity = Severity::kFail;
    finding.where = {PlaceKind::kPort, host, 0, Direction::kTransmit, "", ""};
    finding.unit = Unit::kGbps;
    finding.value = gbps;
    finding.expected = 400;
    return finding;
  };
  std::vector<Finding> findings = {rate("h1", 340), rate("h2", 100), rate("h3", 200)};
  findings[0].score = 1;
  sort_heaviest_first(findings);
  EXPECT_EQ(findings[0].where.host, "h2");
  EXPECT_EQ(findings[1].where.host, "h3");
}

}  // namespace
}  // namespace weft::fabric::checking
