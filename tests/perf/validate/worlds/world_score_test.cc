// Scores of worlds: when a fault counts as found, as named, and as a false accusation.
#include "perf/validate/worlds/world_score.h"

#include <gtest/gtest.h>

namespace weft::fabric {
namespace {

SimWorld with(Effect effect) {
  SimWorld world = make_world("noise", 16, 2, 400, 1);
  world.leaf_hosts = 4;
  world.effects = {effect};
  return world;
}

Effect slow(Effect::Place place, FaultWay way = FaultWay::kTransmit) {
  return {"", Effect::Kind::kRate, place, way, {5, 1}, {9, 1}, 0, 0.5, {}};
}

Report reporting(std::vector<Where> places, Severity severity = Severity::kFail) {
  Report report;
  for (Where& where : places) {
    Finding finding;
    finding.severity = severity;
    finding.where = std::move(where);
    report.judgement.findings.push_back(finding);
  }
  report.verdict = verdict_of(report.judgement.findings);
  return report;
}

Where at(PlaceKind kind, const std::string& host, int rail, Direction direction = Direction::kBoth,
         const std::string& peer = "") {
  Where where;
  where.kind = kind;
  where.host = host;
  where.rail = rail;
  where.direction = direction;
  where.peer = peer;
  return where;
}

Evidence port_of(const std::string& host, int rail) {
  Evidence evidence;
  evidence.name = "port";
  evidence.host = host;
  evidence.rail = rail;
  return evidence;
}

Where port(const std::string& host, int rail, Direction direction = Direction::kTransmit) {
  return at(PlaceKind::kPort, host, rail, direction);
}

TEST(WorldScore, APortIsNamedWithItsDirection) {
  const SimWorld world = with(slow(Effect::Place::kPort));
  WorldScore right = score(world, reporting({port("h5", 1)}));
  EXPECT_TRUE(right.faults[0].found && right.faults[0].placed);
  EXPECT_EQ(right.innocents, 0);
  const WorldScore wrong_way = score(world, reporting({port("h5", 1, Direction::kReceive)}));
  EXPECT_TRUE(wrong_way.faults[0].found);
  EXPECT_FALSE(wrong_way.faults[0].placed);
  const WorldScore other_rail = score(world, reporting({port("h5", 0)}));
  EXPECT_FALSE(other_rail.faults[0].found);
  EXPECT_EQ(other_rail.innocents, 0) << "shares the host";
  EXPECT_EQ(score(world, reporting({port("h6", 1)})).innocents, 1);
  EXPECT_FALSE(score(world, reporting({port("h5", 1)}, Severity::kInfo)).faults[0].found);
  const WorldScore fleet = score(world, reporting({Where{}}));
  EXPECT_FALSE(fleet.faults[0].found);
  EXPECT_EQ(fleet.innocents, 1) << "all others";
}

TEST(WorldScore, ALeafIsNamedByItsSwitch) {
  const SimWorld world = with(slow(Effect::Place::kUplink));
  Report report = reporting({at(PlaceKind::kSwitch, "", 1)});
  report.judgement.findings[0].evidence.push_back(port_of("h7", 1));
  report.judgement.findings[0].evidence.push_back(port_of("h8", 1));
  report.judgement.findings[0].evidence.back().name = "ecmp-entropy";  // a symptom elsewhere
  EXPECT_TRUE(score(world, report).faults[0].placed);
  report.judgement.findings[0].evidence.push_back(port_of("h8", 1));
  EXPECT_FALSE(score(world, report).faults[0].placed) << "another leaf's host";
  const WorldScore host = score(world, reporting({port("h6", 1)}));
  EXPECT_TRUE(host.faults[0].found && !host.faults[0].placed);
  EXPECT_EQ(score(world, reporting({port("h8", 1)})).innocents, 1);
}

TEST(WorldScore, PathsRailsAndNodes) {
  const SimWorld path = with(slow(Effect::Place::kPath));
  EXPECT_TRUE(score(path, reporting({at(PlaceKind::kPath, "h5", 1, Direction::kTransmit, "h9")}))
                  .faults[0]
                  .placed);
  EXPECT_FALSE(score(path, reporting({at(PlaceKind::kPath, "h9", 1, Direction::kTransmit, "h5")}))
                   .faults[0]
                   .placed);
  const SimWorld rail = with(slow(Effect::Place::kRail));
  EXPECT_TRUE(score(rail, reporting({at(PlaceKind::kRail, "", 1)})).faults[0].placed);
  EXPECT_EQ(score(rail, reporting({at(PlaceKind::kRail, "", 0)})).innocents, 1);
  const SimWorld node = with(slow(Effect::Place::kNode, FaultWay::kBoth));
  EXPECT_TRUE(score(node, reporting({at(PlaceKind::kHost, "h5", -1)})).faults[0].placed);
}

TEST(WorldScore, UnknownIsAMissWithAFaultAndAFalseAlarmWithout) {
  Report report = reporting({port("h5", 1)});
  report.judgement.findings[0].unknown = true;
  report.verdict = verdict_of(report.judgement.findings);
  const WorldScore missed = score(with(slow(Effect::Place::kPort)), report);
  EXPECT_TRUE(missed.unknown);
  EXPECT_FALSE(missed.faults[0].found);
  EXPECT_FALSE(missed.false_alarm);
  Report tester = reporting({});
  tester.verdict = Verdict::kTester;
  EXPECT_TRUE(score(with(slow(Effect::Place::kPort)), tester).unknown);
  const SimWorld clean = make_world("noise", 16, 2, 400, 1);
  EXPECT_TRUE(score(clean, report).false_alarm);
  EXPECT_FALSE(score(clean, reporting({})).false_alarm);
  const WorldScore blamed = score(clean, reporting({port("h5", 1)}));
  EXPECT_TRUE(blamed.false_alarm);
  EXPECT_EQ(blamed.innocents, 1);
}

}  // namespace
}  // namespace weft::fabric
