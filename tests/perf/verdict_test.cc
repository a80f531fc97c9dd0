// From items to a verdict and an exit code; pairs and what is thought of them.
#include "perf/verdict.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <set>

#include "perf/pairs.h"
#include "perf/validate_collectives.h"
#include "perf/validate_host.h"
#include "perf/validate_rails.h"

namespace weft {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

Item item(Verdict verdict) { return {"s", "x", verdict, "detail", "fault-id", "do this"}; }

TEST(Verdict, TheWorstItemDecidesAndIsNeverOkByDefault) {
  EXPECT_EQ(exit_code(overall({})), 3) << "nothing was looked at";
  EXPECT_EQ(exit_code(overall({item(Verdict::kPass)})), 0);
  EXPECT_EQ(exit_code(overall({item(Verdict::kPass), item(Verdict::kSkip)})), 0);
  EXPECT_EQ(exit_code(overall({item(Verdict::kPass), item(Verdict::kWarn)})), 1);
  EXPECT_EQ(exit_code(overall({item(Verdict::kWarn), item(Verdict::kUnknown)})), 3);
  EXPECT_EQ(exit_code(overall({item(Verdict::kUnknown), item(Verdict::kFail)})), 2);
}

TEST(Verdict, TheSummaryNamesFaultAndRemedy) {
  const std::string text = summary_text({item(Verdict::kPass), item(Verdict::kFail)}, 1);
  EXPECT_THAT(text, HasSubstr("fault-id"));
  EXPECT_THAT(text, HasSubstr("do this"));
  EXPECT_THAT(text, HasSubstr("verdict: CRITICAL"));
  EXPECT_THAT(text, HasSubstr("1 PASS, 1 FAIL"));
}

TEST(Pairs, RoundsCoverEveryPairOnceAndShareNoRank) {
  for (int n = 1; n <= 33; ++n) {
    std::set<std::pair<Rank, Rank>> seen;
    for (const auto& round : pair_rounds(n)) {
      std::set<Rank> busy;
      for (const auto& [a, b] : round) {
        EXPECT_LT(a, b);
        EXPECT_LT(b, n);
        EXPECT_TRUE(busy.insert(a).second && busy.insert(b).second) << "n = " << n;
        EXPECT_TRUE(seen.insert({a, b}).second) << "n = " << n;
      }
    }
    EXPECT_EQ(seen.size(), static_cast<std::size_t>(n) * (n - 1) / 2);
  }
}

std::vector<PairResult> alike(int n) {
  std::vector<PairResult> results;
  for (Rank a = 0; a < n; ++a)
    for (Rank b = 0; b < n; ++b)
      if (a != b) results.push_back({a, b, "ucx rail 0", 5, 10});
  return results;
}

TEST(Pairs, EqualPairsPass) {
  const auto items = judge_pairs(alike(4), 12, kRealLimits);
  EXPECT_EQ(overall(items), Verdict::kPass);
}

TEST(Pairs, ASlowDirectionIsNamedByItsRanks) {
  auto results = alike(4);
  results[5].bandwidth_GBps = 4;  // 40 % of the usual
  auto items = judge_pairs(results, 12, kRealLimits);
  EXPECT_EQ(overall(items), Verdict::kWarn);
  EXPECT_EQ(items.back().subject, "rank 1 -> rank 3");
  EXPECT_EQ(items.back().fault, "pair-slow-bandwidth");
  EXPECT_EQ(overall(judge_pairs(results, 12, kEmulatedLimits)), Verdict::kPass);
  results[5].bandwidth_GBps = 0.5;
  EXPECT_EQ(overall(judge_pairs(results, 12, kRealLimits)), Verdict::kFail);
  results = alike(4);
  results[0].latency_us = 20;
  items = judge_pairs(results, 12, kRealLimits);
  EXPECT_EQ(overall(items), Verdict::kWarn);
  EXPECT_EQ(items.back().fault, "pair-slow-latency");
}

// As on a rail between two hosts with a rank each.
TEST(Pairs, OfTwoDirectionsTheSlowOneIsNamed) {
  for (const int slow : {0, 1}) {
    std::vector<PairResult> results = {{0, 1, "tcp rail 0", 10, 10}, {1, 0, "tcp rail 0", 10, 10}};
    results[slow].bandwidth_GBps = 0.5;
    const auto items = judge_pairs(results, 2, kRealLimits);
    EXPECT_EQ(overall(items), Verdict::kFail);
    EXPECT_EQ(items.back().subject, slow == 0 ? "rank 0 -> rank 1" : "rank 1 -> rank 0");
    EXPECT_THAT(out_of_line(results, kRealLimits), ElementsAre(std::pair(0, 1)));
  }
}

// Of three hosts with a rank each, four of six directions are those of the slow one.
TEST(Pairs, OfThreeRanksTheSlowOneIsNamed) {
  for (Rank slow = 0; slow < 3; ++slow) {
    auto results = alike(3);
    for (PairResult& r : results) {
      if (r.from != slow && r.to != slow) continue;
      r.bandwidth_GBps = 0.5;
      r.latency_us = 50;
    }
    const auto items = judge_pairs(results, 6, kRealLimits);
    EXPECT_EQ(overall(items), Verdict::kFail);
    EXPECT_EQ(std::ranges::count(items, "pair-slow-bandwidth", &Item::fault), 4) << slow;
    EXPECT_EQ(std::ranges::count(items, "pair-slow-latency", &Item::fault), 4) << slow;
    EXPECT_EQ(out_of_line(results, kRealLimits).size(), 2u);
  }
}

std::vector<PairResult> two_rails(double first, double second, double gbps0 = 0, double gbps1 = 0) {
  return {{0, 2, "tcp rail 0", 5, first, 1, gbps0},  {2, 0, "tcp rail 0", 5, first, 1, gbps0},
          {1, 3, "tcp rail 1", 5, second, 1, gbps1}, {3, 1, "tcp rail 1", 5, second, 1, gbps1},
          {0, 1, "shm", 1, 100},                     {1, 0, "shm", 1, 100}};
}

TEST(Pairs, ARailThatIsSlowEverywhereIsNamed) {
  EXPECT_EQ(overall(judge_pairs(two_rails(10, 9), 6, kRealLimits)), Verdict::kPass);
  auto items = judge_pairs(two_rails(10, 4), 6, kRealLimits);
  EXPECT_EQ(overall(items), Verdict::kWarn);
  EXPECT_EQ(items.back().subject, "tcp rail 1");
  EXPECT_EQ(items.back().fault, "rail-slow");
  EXPECT_THAT(items.back().detail, HasSubstr("40 % of tcp rail 0's 10.00"));
  items = judge_pairs(two_rails(0.5, 10), 6, kRealLimits);
  EXPECT_EQ(overall(items), Verdict::kFail);
  EXPECT_EQ(items.back().subject, "tcp rail 0");
  // Of rails of unequal rates each is measured by its own.
  EXPECT_EQ(overall(judge_pairs(two_rails(10, 2.5, 100, 25), 6, kRealLimits)), Verdict::kPass);
  EXPECT_EQ(overall(judge_pairs(two_rails(10, 10, 100, 400), 6, kRealLimits)), Verdict::kWarn);
}

// A pair is called by the rails that its large messages use.
TEST(Pairs, LinksNameTheirRails) {
  const auto topology = [](int ranks_per_host, double second) {
    Nic a, b;
    a.name = "eth0";
    b.name = "eth1";
    a.rate_gbps = 100;
    b.rate_gbps = second;
    std::vector<Place> places;
    for (int r = 0; r < 2 * ranks_per_host; ++r) {
      places.emplace_back();
      places.back().host = r < ranks_per_host ? "a" : "b";
      places.back().rails = {a, b};
    }
    return Topology(std::move(places));
  };
  EXPECT_EQ(link_of(topology(2, 100), "auto", true, 0, 1).link, "shm");
  EXPECT_EQ(link_of(topology(2, 100), "auto", true, 0, 3).link, "tcp across rails");
  EXPECT_EQ(link_of(topology(2, 100), "auto", true, 3, 1).link, "tcp rail 1");
  EXPECT_EQ(link_of(topology(2, 100), "auto", true, 3, 1).rail_gbps, 100);
  const PairResult both = link_of(topology(1, 50), "auto", true, 1, 0);
  EXPECT_EQ(both.link, "tcp rails 0,1");
  EXPECT_EQ(both.rails, 2);
  EXPECT_EQ(both.rail_gbps, 150);
  EXPECT_EQ(link_of(topology(1, 0), "auto", true, 1, 0).rail_gbps, 0) << "one of them is not known";
  const PairResult alone = link_of(topology(1, 50), "auto", false, 1, 0);
  EXPECT_EQ(alone.link, "tcp rail 0") << "WEFT_FAILOVER=0: all of it over the rail of the ranks";
  EXPECT_EQ(alone.rails, 1);
  EXPECT_EQ(alone.rail_gbps, 100);
}

TEST(Pairs, WhoIsOutOfLineIsMeasuredAgain) {
  auto results = alike(4);
  EXPECT_THAT(out_of_line(results, kRealLimits), IsEmpty());
  results[3].latency_us = 20;      // rank 1 -> rank 0
  results[0].bandwidth_GBps = 1;   // the way back
  results[11].bandwidth_GBps = 1;  // rank 3 -> rank 2
  EXPECT_THAT(out_of_line(results, kRealLimits), ElementsAre(std::pair(0, 1), std::pair(2, 3)));
  EXPECT_THAT(out_of_line(results, kEmulatedLimits), IsEmpty());
}

// As the report says of them: "times are judged leniently".
TEST(Pairs, RanksThatTakeTurnsOnCoresAreJudgedLeniently) {
  EXPECT_EQ(&limits_for(false, crowded({{"cores", 4}}, 4)), &kRealLimits);
  EXPECT_EQ(&limits_for(false, crowded({{"cores", 4}}, 5)), &kEmulatedLimits);
  EXPECT_EQ(&limits_for(true, crowded({{"cores", 4}}, 1)), &kEmulatedLimits);
}

TEST(Pairs, WhatWasNotMeasuredIsUnknown) {
  auto results = alike(4);
  results.resize(6);
  EXPECT_EQ(overall(judge_pairs(results, 12, kRealLimits)), Verdict::kUnknown);
}

TEST(Outages, NameTheRailAndTheHostThatAllHaveInCommon) {
  EXPECT_THAT(judge_outages({}), IsEmpty());
  std::vector<RailOutage> outages = {{1, "a", "b", false, "its link is down"},
                                     {1, "b", "a", false, "no answer"},
                                     {1, "b", "c", false, "no answer"}};
  auto items = judge_outages(outages);
  ASSERT_EQ(items.size(), 1u);
  EXPECT_EQ(items[0].subject, "rail 1 host b");
  EXPECT_EQ(items[0].verdict, Verdict::kFail);
  EXPECT_THAT(items[0].detail, HasSubstr("between hosts a, b, c: its link is down"));
  outages.push_back({1, "c", "a", false, "no answer"});
  outages.push_back({0, "a", "b", true, "no answer"});
  items = judge_outages(outages);
  ASSERT_EQ(items.size(), 2u);
  EXPECT_EQ(items[0].subject, "rail 0");
  EXPECT_EQ(items[0].verdict, Verdict::kWarn) << "it came back";
  EXPECT_EQ(items[1].subject, "rail 1") << "the whole rail, or more than one host";
}

TEST(ValidationCases, CoverTypesOperatorsAndBothPlaces) {
  std::set<std::pair<DType, RedOp>> seen;
  std::set<bool> places;
  for (const Case& c : validation_cases(Collective::kAllReduce, 4)) {
    seen.insert({c.type, c.op});
    places.insert(c.in_place);
  }
  std::size_t combinations = 0;
  for (DType type : kAllDTypes)
    for (RedOp op : kAllRedOps) combinations += defined(op, type);
  EXPECT_EQ(seen.size(), combinations);
  EXPECT_EQ(places.size(), 2u);
  std::set<Rank> roots;
  for (const Case& c : validation_cases(Collective::kBroadcast, 4)) roots.insert(c.root);
  EXPECT_EQ(roots, (std::set<Rank>{0, 3}));
}

}  // namespace
}  // namespace weft
