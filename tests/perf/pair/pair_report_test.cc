// The report of many pairs.
#include "perf/pair/pair_report.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace weft {
namespace {

using ::testing::AllOf;
using ::testing::ContainsRegex;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;

// Ranks 0 to 2 on separate hosts, each pair with the given MB/s.
std::vector<PairRow> rows(double to_0_from_1, double to_0_from_2, double to_1_from_2) {
  std::vector<PairRow> all;
  const auto add = [&](int client, int server, double rate) {
    nlohmann::ordered_json sent = {{"average", rate * (1 << 20)},
                                   {"messages_per_second", rate * 1e6}};
    all.push_back(
        {client, server, 65536, sent, {}, fmt::format("h{}", client), fmt::format("h{}", server)});
  };
  add(1, 0, to_0_from_1);
  add(2, 0, to_0_from_2);
  add(2, 1, to_1_from_2);
  return all;
}

TEST(PairSummary, IsATableWithTheSlowPairsMarked) {
  const std::string text = pair_summary({}, rows(10, 10.5, 5));
  EXPECT_THAT(text, AllOf(HasSubstr("3 pairs: 5.00 (2->1) to 10.50 (2->0), median 10.00 MB/sec\n"),
                          ContainsRegex("# MB/sec +->0 +->1\n"), ContainsRegex("# 1 +10.00\n"),
                          ContainsRegex("# 2 +10.50 +5.00[*]\n"),
                          HasSubstr("# SLOW: 2->1, h2 to h1: 5.00 MB/sec, 0.50 of the median\n")));
  EXPECT_THAT(pair_summary({}, rows(10, 10.5, 9.5)), Not(AllOf(HasSubstr("*"), HasSubstr("SLOW"))));
  PairOptions ring;
  ring.pairs = "ring";
  EXPECT_THAT(pair_summary(ring, rows(10, 10.5, 5)),
              AllOf(HasSubstr("SLOW: 2->1"), Not(HasSubstr("*"))));
  const auto json = to_json({}, rows(10, 10.5, 5),
                            {{{"client", 2}, {"server", 1}, {"sizes", nlohmann::json::array()}},
                             {{"client", 1}, {"server", 0}, {"sizes", nlohmann::json::array()}}});
  EXPECT_EQ(json["pairs"][0]["sizes"][0]["slow"], true);
  EXPECT_EQ(json["pairs"][1]["sizes"][0]["slow"], false);
}

TEST(PairLimits, EachPairReachesThemAtItsBestSize) {
  PairOptions o;
  EXPECT_THAT(missed_limits(o, rows(10, 10, 5)), IsEmpty());
  o.min_rate = 6;
  EXPECT_THAT(missed_limits(o, rows(10, 10, 5)),
              ElementsAre("2->1: 5.00 MB/sec is below --min-rate 6"));
  std::vector<PairRow> two_sizes = rows(10, 10, 5);
  two_sizes.push_back(two_sizes.back());
  two_sizes.back().at_client["average"] = 7.0 * (1 << 20);
  EXPECT_THAT(missed_limits(o, two_sizes), IsEmpty());
  o.min_rate = 0;
  o.min_msgrate = 8;
  EXPECT_THAT(missed_limits(o, rows(10, 10, 5)),
              ElementsAre(HasSubstr("Mpps is below --min-msgrate 8")));
}

TEST(PairPorts, ALineForEachEndWhoseCountersMoved) {
  PairRow row = rows(1, 1, 1)[0];
  EXPECT_THAT(pair_ports(row), HasSubstr("no counter of a port moved"));
  row.at_server["counters"] = {{"port_xmit_wait", 7}};
  EXPECT_EQ(pair_ports(row), " # server: port_xmit_wait +7\n");
}

}  // namespace
}  // namespace weft
