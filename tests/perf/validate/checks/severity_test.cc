// Faults that are smaller, or shown by less, than those of the registry's rows.
#include <gtest/gtest.h>

#include <string>
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

TEST(Severity, FirmwareIsComparedWithWhatThePolicyDeclares) {
  Fleet fleet = healthy_fleet(FleetKind::kInfiniband);
  const PortFacts& port = fleet.port(0);
  fleet.policy.firmware[*port.board] = *port.firmware;
  EXPECT_TRUE(told_by("firmware", fleet).empty());
  fleet.policy.firmware[*port.board] = "another";
  EXPECT_FALSE(told_by("firmware", fleet).empty())
      << "all ports are alike, and none is as declared";
}

}  // namespace
}  // namespace weft::fabric::checking
