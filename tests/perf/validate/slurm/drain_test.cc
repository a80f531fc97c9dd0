// Drained nodes: those with a certain fault of their own, and no others.
#include "perf/validate/slurm/drain.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "topo/base/status.h"

namespace weft::fabric {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;
using Json = nlohmann::ordered_json;

Json finding() {
  return {{"id", "port-rate"},
          {"severity", "critical"},
          {"unknown", false},
          {"where", {{"kind", "port"}, {"host", "n3"}, {"rail", 1}, {"direction", "transmit"}}},
          {"value_gbps", 187.2},
          {"expected_gbps", 392.0},
          {"sentence", "n3 rail 1 sends at 187 of 392 Gb/s"},
          {"certainty", "certain"}};
}

std::vector<Drain> drains(const std::vector<Json>& findings, int exit_code = 2) {
  return nodes_to_drain(
      {{"schema", "weft.validate/3"}, {"exit_code", exit_code}, {"findings", findings}});
}

TEST(Drain, APortsFaultDrainsItsNodeWithTheReportsSentence) {
  EXPECT_THAT(drains({finding()}),
              ElementsAre(Drain{"n3", "weft: n3 rail 1 sends at 187 of 392 Gb/s"}));
}

TEST(Drain, OnlyCriticalDrains) {
  for (const int code : {0, 1, 3, 4}) EXPECT_THAT(drains({finding()}, code), IsEmpty()) << code;
}

TEST(Drain, WhatIsNoNodesFaultDrainsNone) {
  std::vector<Json> findings(7, finding());
  findings[0]["severity"] = "warn";
  findings[1]["unknown"] = true;
  findings[2]["where"] = {{"kind", "path"}, {"host", "n3"}, {"peer", "n4"}, {"rail", 0}};
  findings[3]["where"] = {{"kind", "rail"}, {"rail", 1}};
  findings[4]["where"] = {{"kind", "tester"}, {"host", "n3"}};
  findings[5]["certainty"] = "possible";
  findings[6]["explained_by"] = "link-state";
  EXPECT_THAT(drains(findings), IsEmpty());
}

TEST(Drain, TheCertaintyOfAnOlderReportIsThatOfItsNumber) {
  Json old = finding();
  old.erase("certainty");
  old["confidence"] = 0.96;
  EXPECT_EQ(drains({old}).size(), 1u);
  old["confidence"] = 0.94;
  EXPECT_THAT(drains({old}), IsEmpty());
  const Json report = {{"schema", "weft.validate/3"}, {"exit_code", 2}, {"findings", {old}}};
  EXPECT_EQ(nodes_to_drain(report, Certainty::kPossible).size(), 1u);
}

TEST(Drain, TheHeaviestFindingOfANodeIsItsReason) {
  Json host = finding(), text = finding(), odd = finding();
  host["where"] = {{"kind", "host"}, {"host", "n1"}};
  host["sentence"] = "n1 sends at 100 of 392 Gb/s";
  text["sentence"] = "n2: firmware \"22.1\"\n" + std::string(300, 'x');
  text["where"] = {{"kind", "host"}, {"host", "n2"}};
  EXPECT_THAT(drains({host, text, odd, host}),
              ElementsAre(Drain{"n1", "weft: n1 sends at 100 of 392 Gb/s"},
                          Drain{"n2", "weft: n2: firmware  22.1 "},
                          Drain{"n3", "weft: n3 rail 1 sends at 187 of 392 Gb/s"}));
}

TEST(Drain, AnotherReportIsRefused) {
  EXPECT_THROW(nodes_to_drain({{"schema", "weft.validate/1"}}), Error);
  EXPECT_THROW(nodes_to_drain({{"schema", "weft.validate/3"}}), Error);
  EXPECT_THROW(nodes_to_drain(Json::array()), Error);
  Json bare = finding();
  bare.erase("where");
  EXPECT_THROW(drains({bare}), Error);
}

}  // namespace
}  // namespace weft::fabric
