// The verdict of findings, and findings as JSON.
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "perf/validate/checks/finding.h"

namespace weft::fabric::checking {
namespace {

Finding finding(Severity severity, PlaceKind kind = PlaceKind::kPort, bool unknown = false) {
  Finding f;
  f.id = "port-rate";
  f.severity = severity;
  f.where.kind = kind;
  f.unknown = unknown;
  return f;
}

const Finding kWarning = finding(Severity::kWarn), kFailure = finding(Severity::kFail),
              kFatality = finding(Severity::kFatal), kNote = finding(Severity::kInfo),
              kSlowTester = finding(Severity::kFail, PlaceKind::kTester),
              kBusyTester = finding(Severity::kInfo, PlaceKind::kTester),
              kDoubt = finding(Severity::kFatal, PlaceKind::kPort, true),
              kSmallDoubt = finding(Severity::kInfo, PlaceKind::kPort, true);

TEST(Verdict, TheHeaviestFindingDecides) {
  EXPECT_EQ(verdict_of({}), Verdict::kOk);
  EXPECT_EQ(verdict_of({kNote, kBusyTester, kSmallDoubt}), Verdict::kOk);
  EXPECT_EQ(verdict_of({kWarning, kNote}), Verdict::kWarn);
  EXPECT_EQ(verdict_of({kFailure}), Verdict::kCritical);
  EXPECT_EQ(verdict_of({kWarning, kFatality}), Verdict::kCritical);
  EXPECT_EQ(verdict_of({kSlowTester}), Verdict::kTester);
  EXPECT_EQ(verdict_of({kDoubt}), Verdict::kUnknown);
}

TEST(Verdict, UnknownHidesNothing) {
  EXPECT_EQ(verdict_of({kDoubt, kWarning}), Verdict::kWarn);
  EXPECT_EQ(verdict_of({kDoubt, kFailure}), Verdict::kCritical);
  EXPECT_EQ(verdict_of({kDoubt, kSlowTester}), Verdict::kTester);
}

TEST(Verdict, ASlowTesterHidesNoFault) {
  EXPECT_EQ(verdict_of({kSlowTester, kFailure}), Verdict::kCritical);
  EXPECT_EQ(verdict_of({kSlowTester, kWarning, kDoubt}), Verdict::kTester);
}

TEST(FindingJson, HasUnitsInItsKeys) {
  Finding f = finding(Severity::kFail);
  f.where = {PlaceKind::kPath, "h1", 2, Direction::kTransmit, "h4", "mlx5_2"};
  f.value = 187;
  f.expected = 392;
  f.low = 180;
  f.high = 190;
  f.unit = Unit::kGbps;
  f.score = 0.9;
  f.explained_by = "link-rate";
  Evidence text;
  text.name = "firmware";
  text.unit = Unit::kText;
  text.text = "28.39";
  f.evidence = {{"hw.out_of_sequence", "h4", 2, 98, 0, Unit::kCount, ""}, text};
  const nlohmann::ordered_json expected = nlohmann::ordered_json::parse(R"({
    "id": "port-rate", "severity": "critical", "unknown": false,
    "where": {"kind": "path", "host": "h1", "rail": 2, "direction": "transmit", "peer": "h4",
              "device": "mlx5_2"},
    "value_gbps": 187.0, "expected_gbps": 392.0, "low_gbps": 180.0, "high_gbps": 190.0,
    "certainty": "possible", "score": 0.9, "explained_by": "link-rate",
    "evidence": [{"name": "hw.out_of_sequence", "host": "h4", "rail": 2, "value_count": 98.0,
                  "expected_count": 0.0},
                 {"name": "firmware", "text": "28.39"}]})");
  EXPECT_EQ(to_json(f), expected);
}

TEST(FindingJson, TextsHaveNoNumbers) {
  Finding f = finding(Severity::kWarn);
  f.unit = Unit::kText;
  f.text = "22.36";
  f.expected_text = "28.39";
  const auto json = to_json(f);
  EXPECT_EQ(json["text"], "22.36");
  EXPECT_EQ(json["expected_text"], "28.39");
  EXPECT_FALSE(json.contains("value"));
}

}  // namespace
}  // namespace weft::fabric::checking
