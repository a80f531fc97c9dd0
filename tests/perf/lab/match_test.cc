// Compares reports with injected faults: the kind, the exact place, and false alarms.
#include "perf/lab/matrix/match.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "topo/base/status.h"

namespace weft {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

const MatrixLab kLab = {"netlab", {"h1", "h2", "h3", "h4"}, 2};

LabFault fault(const std::string& kind, FaultPlace place, const std::string& host, int rail) {
  LabFault fault;
  fault.kind = kind;
  fault.place = place;
  fault.host = host;
  fault.rail = rail;
  return fault;
}

Claim claim(const std::string& id, const std::string& place, const std::string& host, int rail,
            const std::string& direction = "both", const std::string& peer = "") {
  Claim claim;
  claim.id = id;
  claim.severity = "fail";
  claim.place = place;
  claim.host = host;
  claim.rail = rail;
  claim.direction = direction;
  claim.peer = peer;
  return claim;
}

Match matched(const std::vector<LabFault>& faults, const std::vector<Claim>& claims,
              const std::string& verdict = "critical") {
  return match({"x/0", faults}, {verdict, claims}, kLab);
}

TEST(Matching, APortsDirectionMustBeRight) {
  const LabFault slow = fault("rate", FaultPlace::kTransmit, "h2", 1);
  const auto says = [&](const Claim& claim) { return matched({slow}, {claim}); };
  Match right = says(claim("port-rate", "port", "h2", 1, "transmit"));
  EXPECT_TRUE(right.faults[0].kind && right.faults[0].place && right.verdict);
  EXPECT_THAT(right.false_alarms, IsEmpty());

  const Match both = says(claim("port-rate", "port", "h2", 1));
  EXPECT_TRUE(both.faults[0].kind);
  EXPECT_FALSE(both.faults[0].place) << "the other direction is sound";
  EXPECT_THAT(both.false_alarms, IsEmpty());

  const Match receives = says(claim("port-rate", "port", "h2", 1, "receive"));
  EXPECT_FALSE(receives.faults[0].kind);
  EXPECT_THAT(receives.false_alarms, ElementsAre("port-rate at port h2r1:rx"));

  const Match wide = says(claim("host-rate", "host", "h2", -1));
  EXPECT_TRUE(wide.faults[0].kind);
  EXPECT_FALSE(wide.faults[0].place);
  const Match narrow = says(claim("path-rate", "path", "h2", 1, "both", "h3"));
  EXPECT_TRUE(narrow.faults[0].kind);
  EXPECT_FALSE(narrow.faults[0].place) << "one path is not the port";
}

TEST(Matching, ClaimsTogetherMayCoverAPlace) {
  const LabFault host = fault("rate", FaultPlace::kHost, "h2", -1);
  EXPECT_TRUE(matched({host}, {claim("host-rate", "host", "h2", -1)}).faults[0].place);
  EXPECT_TRUE(matched({host}, {claim("port-rate", "port", "h2", 0),
                               claim("port-rate", "port", "h2", 1, "receive"),
                               claim("port-rate", "port", "h2", 1, "transmit")})
                  .faults[0]
                  .place);
  EXPECT_FALSE(matched({host}, {claim("port-rate", "port", "h2", 0)}).faults[0].place);
  const LabFault rail = fault("loss", FaultPlace::kRail, "", 1);
  EXPECT_TRUE(matched({rail}, {claim("loss", "rail", "", 1)}).faults[0].place);
  EXPECT_TRUE(matched({rail}, {claim("loss", "switch", "", 1)}).faults[0].place);
  EXPECT_FALSE(matched({rail}, {claim("loss", "rail", "", 0)}).faults[0].kind);
}

TEST(Matching, AnotherKindAtTheRightPlaceIsNoFalseAlarmAndNoName) {
  const Match seen = matched({fault("loss", FaultPlace::kReceive, "h3", 0)},
                             {claim("port-rate", "port", "h3", 0, "receive")});
  EXPECT_FALSE(seen.faults[0].kind);
  EXPECT_THAT(seen.false_alarms, IsEmpty());
}

TEST(Matching, ConsequencesAndWhatIsUnknownAreNoFalseAlarms) {
  Claim explained = claim("port-rate", "port", "h4", 0), unknown = claim("loss", "port", "h4", 1);
  explained.explained = true;
  unknown.unknown = true;
  EXPECT_THAT(matched({}, {explained, unknown}).false_alarms, IsEmpty());
  EXPECT_THAT(matched({}, {claim("loss", "rail", "", 1)}).false_alarms,
              ElementsAre("loss at rail rail1"));
}

TEST(Matching, AReportThatDoesNotKnowMissesAFaultAndIsAFalseAlarmWithoutOne) {
  const LabFault slow = fault("rate", FaultPlace::kTransmit, "h2", 1);
  const Match miss = matched({slow}, {claim("port-rate", "port", "h2", 1, "transmit")}, "unknown");
  EXPECT_FALSE(miss.faults[0].kind || miss.faults[0].place || miss.verdict);
  EXPECT_THAT(miss.false_alarms, IsEmpty());
  EXPECT_THAT(matched({}, {}, "unknown").false_alarms, ElementsAre("verdict unknown"));
}

TEST(Matching, WhatComesAndGoesIsAPortInOneDirectionOrEither) {
  for (const char* const kind : {"spell", "cut"}) {
    const std::string id = kind == std::string("spell") ? "unstable-rate" : "loss";
    const LabFault sends = fault(kind, FaultPlace::kTransmit, "h2", 1);
    const auto place = [&](const LabFault& where, const std::string& direction) {
      return matched({where}, {claim(id, "port", "h2", 1, direction)}, "warn");
    };
    EXPECT_TRUE(place(sends, "transmit").faults[0].place);
    EXPECT_TRUE(place(sends, "transmit").verdict);
    EXPECT_FALSE(place(sends, "both").faults[0].place);
    EXPECT_FALSE(place(sends, "receive").faults[0].place);
    EXPECT_THAT(place(sends, "receive").false_alarms, IsEmpty()) << "the same port";
    const LabFault both = fault(kind, FaultPlace::kPort, "h2", 1);
    for (const char* const direction : {"transmit", "receive", "both"})
      EXPECT_TRUE(place(both, direction).faults[0].place);
    EXPECT_FALSE(matched({both}, {claim(id, "host", "h2", -1)}).faults[0].place);
    EXPECT_THAT(matched({both}, {claim(id, "port", "h2", 0)}).false_alarms,
                ElementsAre(id + " at port h2r0"));
  }
}

TEST(Matching, OneBadPathOfFourIsThePortOrTheSwitch) {
  const LabFault member = fault("ecmp", FaultPlace::kReceive, "h2", 1);
  for (const Claim& right :
       {claim("loss", "port", "h2", 1), claim("port-rate", "port", "h2", 1, "transmit"),
        claim("switch-rate", "switch", "", 1), claim("ecmp-entropy", "rail", "", 1)}) {
    const Match named = matched({member}, {right}, "warn");
    EXPECT_TRUE(named.faults[0].kind && named.faults[0].place) << in_words(right);
    EXPECT_THAT(named.false_alarms, IsEmpty()) << in_words(right);
  }
  for (const Claim& wrong :
       {claim("host-rate", "host", "h2", -1), claim("path-rate", "path", "h3", 1, "both", "h2"),
        claim("fleet-rate", "fleet", "", -1)})
    EXPECT_FALSE(matched({member}, {wrong}, "warn").faults[0].place) << in_words(wrong);
  EXPECT_THAT(matched({member}, {claim("loss", "port", "h3", 1)}).false_alarms,
              ElementsAre("loss at port h3r1"));
}

TEST(Matching, ABlackHoleIsNamedByThePairAndClearsBothHosts) {
  LabFault hole = fault("blackhole", FaultPlace::kPath, "h2", 1);
  hole.peer = "h4";
  for (const auto& [from, to] : {std::pair("h2", "h4"), std::pair("h4", "h2")})
    EXPECT_TRUE(
        matched({hole}, {claim("unreachable", "path", from, 1, "both", to)}).faults[0].place);
  const Match host = matched({hole}, {claim("unreachable", "port", "h2", 1)});
  EXPECT_FALSE(host.faults[0].place);
  EXPECT_FALSE(
      matched({hole}, {claim("unreachable", "path", "h2", 0, "both", "h4")}).faults[0].kind);
}

TEST(Matching, ASlowProcessorIsNeverAPort) {
  const LabFault cpu = fault("slow-cpu", FaultPlace::kHost, "h3", -1);
  const Match right = matched({cpu}, {claim("tester-starved", "tester", "h3", -1)}, "tester");
  EXPECT_TRUE(right.faults[0].kind && right.faults[0].place && right.verdict);
  const Match wrong = matched({cpu}, {claim("port-rate", "port", "h3", 1)});
  EXPECT_FALSE(wrong.faults[0].kind || wrong.verdict);
  EXPECT_THAT(wrong.false_alarms, ElementsAre("port-rate at port h3r1"));
}

TEST(Matching, ADeadRankIsNamedInWords) {
  const LabFault dead = fault("dead-rank", FaultPlace::kHost, "h3", -1);
  Claim job = claim("job-failed", "fleet", "", -1);
  job.unknown = true;
  job.text = "rank 2 ended without saying goodbye";
  EXPECT_TRUE(matched({dead}, {job}, "unknown").faults[0].place);
  job.text = "rank 21 ended without saying goodbye";
  EXPECT_FALSE(matched({dead}, {job}, "unknown").faults[0].place);
}

TEST(Matching, OfTwoFaultsEachOneIsNamed) {
  const std::vector<LabFault> two = {fault("rate", FaultPlace::kTransmit, "h2", 1),
                                     fault("loss", FaultPlace::kPort, "h4", 0)};
  const Match one = matched(two, {claim("port-rate", "port", "h2", 1, "transmit")});
  EXPECT_TRUE(one.faults[0].place);
  EXPECT_FALSE(one.faults[1].kind);
  const Match both = matched(two, {claim("port-rate", "port", "h2", 1, "transmit"),
                                   claim("loss", "port", "h4", 0), claim("mtu", "port", "h1", 0)});
  EXPECT_TRUE(both.faults[0].place && both.faults[1].place);
  EXPECT_THAT(both.false_alarms, ElementsAre("mtu at port h1r0"));
}

TEST(Matching, AReportIsReadAndAnotherSchemaRefused) {
  const auto report = nlohmann::ordered_json::parse(R"({"schema": "weft.validate/2",
    "verdict": "CRITICAL", "findings": [
      {"id": "port-rate", "severity": "fail", "unknown": false,
       "where": {"kind": "port", "host": "h2", "rail": 1, "direction": "transmit"}},
      {"id": "numa", "severity": "info", "where": {"kind": "host", "host": "h1"}},
      {"id": "job-failed", "severity": "fatal", "unknown": true, "text": "rank 3",
       "where": {"kind": "fleet"}, "explained_by": "unreachable"}]})");
  const Seen seen = seen_from_json(report);
  EXPECT_EQ(seen.verdict, "critical");
  ASSERT_EQ(seen.claims.size(), 2);
  EXPECT_EQ(in_words(seen.claims[0]), "port-rate at port h2r1:tx");
  EXPECT_TRUE(seen.claims[1].unknown && seen.claims[1].explained);
  EXPECT_EQ(seen.claims[1].text, "rank 3");
  EXPECT_THROW(seen_from_json({{"schema", "weft.validate/1"}}), Error);
}

}  // namespace
}  // namespace weft
