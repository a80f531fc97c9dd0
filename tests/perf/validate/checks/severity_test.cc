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

}  // namespace
}  // namespace weft::fabric::checking
