// From items to a verdict and an exit code; pairs and what is thought of them.
#include "perf/validate/verdict.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <set>

#include "perf/collective/perf_report.h"
#include "perf/validate/pairs.h"
#include "perf/validate/validate_collectives.h"
#include "perf/validate/validate_host.h"
#include "perf/validate/validate_rails.h"

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
  return {{0, 2, "tcp rail 0", 5, first, 1, gbps0},
          {2, 0, "tcp rail 0", 5, first, 1, gbps0},
          {1, 3, "tcp rail 1", 5, second, 1, gbps1},
          {3, 1, "tcp rail 1", 5, second, 1, gbps1},
          {0, 1, "shm", 1, 100},
          {1, 0, "shm", 1, 100}};
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

// Containers of one host, and ranks of several users, share no memory: what is slow between them is
// no shared memory that is slow.
TEST(Pairs, RanksOfAHostThatShareNoMemoryAreNotCalledShm) {
  const auto topology = [](const std::string& other_machine) {
    std::vector<Place> places(3);
    for (Place& place : places) {
      place.host = "node";
      place.machine = "kernel:1:0";
      place.rails.resize(1);
      place.rails[0].name = "eth0";
    }
    places[2].machine = other_machine;
    return Topology(std::move(places));
  };
  const Topology containers = topology("kernel:2:0"), one = topology("kernel:1:0");
  EXPECT_EQ(link_of(containers, "auto", true, 0, 1).link, "shm");
  EXPECT_EQ(link_of(containers, "auto", true, 0, 2).link, "tcp inside a host");
  EXPECT_EQ(link_of(one, "auto", true, 0, 2).link, "shm");
  EXPECT_FALSE(hosts_share_memory(containers));
  EXPECT_TRUE(hosts_share_memory(one));
  EXPECT_EQ(transports_in_words("auto", 3, 1, false), "shm where ranks share memory, else tcp");
  EXPECT_EQ(transports_in_words("auto", 3, 1, true), "shm");
}

// Pairs across rails go by the rails of the lower rank: those whose rails are fewer or slower are
// no slow ones.
TEST(Pairs, AcrossRailsThoseAreAlikeThatUseAsMuch) {
  const auto topology = [](const std::vector<int>& ranks, const std::vector<double>& rates) {
    std::vector<Place> places;
    for (std::size_t host = 0; host < ranks.size(); ++host)
      for (int r = 0; r < ranks[host]; ++r) {
        places.emplace_back();
        places.back().host = "host" + std::to_string(host);
        for (const double rate : rates) {
          Nic& nic = places.back().rails.emplace_back();
          nic.name = "eth" + std::to_string(places.back().rails.size());
          nic.rate_gbps = rate;
        }
      }
    return Topology(std::move(places));
  };
  const auto verdict = [](const Topology& t, auto&& rate) {  // of the lower rank's rails
    std::vector<PairResult> results;
    for (Rank a = 0; a < t.nranks(); ++a)
      for (Rank b = 0; b < t.nranks(); ++b) {
        if (a == b) continue;
        PairResult& r = results.emplace_back(link_of(t, "tcp", true, a, b));
        r.latency_us = 5;
        r.bandwidth_GBps = t.same_host(a, b) ? 50 : rate(std::min(a, b));
      }
    return overall(judge_pairs(results, results.size(), kRealLimits));
  };
  const Topology unequal = topology({2, 2}, {100, 25});
  EXPECT_EQ(verdict(unequal, [&](Rank low) { return unequal.rail(low) == 0 ? 12 : 3; }),
            Verdict::kPass);
  EXPECT_EQ(link_of(unequal, "auto", true, 0, 3).link, "tcp across rails, 100 Gb/s");
  EXPECT_EQ(link_of(unequal, "auto", true, 1, 2).link, "tcp across rails, 25 Gb/s");
  const Topology is_vector = topology({1, 1, 1, 4, 4}, {100, 100, 100, 100});
  EXPECT_EQ(verdict(is_vector, [](Rank low) { return low < 3 ? 40 : 10; }), Verdict::kPass);
  EXPECT_EQ(link_of(is_vector, "auto", true, 5, 0).link, "tcp across rails, 4 at once");
  EXPECT_EQ(link_of(is_vector, "auto", true, 3, 8).link, "tcp across rails");
  EXPECT_EQ(link_of(is_vector, "auto", false, 5, 0).link, "tcp across rails");
  EXPECT_EQ(link_of(is_vector, "auto", true, 5, 0).rails, 0) << "no rail is judged by them";
}

// Four ranks of a host on two rails: pairs of a round that met at a port would have a part of its
// rate each, and the share of which depended on the round.
TEST(Pairs, ThoseOfARoundShareNoPort) {
  std::vector<Place> places(12);
  for (std::size_t r = 0; r < places.size(); ++r) {
    places[r].host = fmt::format("h{}", r / 4);
    places[r].rails.resize(2);
    places[r].rails[0].name = "eth0";
    places[r].rails[1].name = "eth1";
  }
  const Topology topology(std::move(places));
  std::set<std::pair<Rank, Rank>> measured;
  for (const auto& round : measuring_rounds(topology, "auto", true, false)) {
    std::set<std::pair<int, int>> ports;
    std::set<Rank> ranks;
    for (const auto& [a, b] : round) {
      EXPECT_TRUE(measured.insert({a, b}).second);
      EXPECT_TRUE(ranks.insert(a).second && ranks.insert(b).second);
      if (topology.same_host(a, b)) continue;
      // Both ends use the rail of the lower rank.
      const int rail = topology.rail(std::min(a, b));
      EXPECT_TRUE(ports.insert({topology.host(a), rail}).second) << a << " and " << b;
      EXPECT_TRUE(ports.insert({topology.host(b), rail}).second) << a << " and " << b;
    }
  }
  EXPECT_EQ(measured.size(), 66u);
  for (const auto& round : measuring_rounds(topology, "auto", true, true))
    EXPECT_EQ(round.size(), 1u) << "on one machine";
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

// Two ranks on each host, all on one rail.
std::vector<PairResult> between_hosts(int hosts) {
  std::vector<PairResult> results;
  for (Rank a = 0; a < 2 * hosts; ++a)
    for (Rank b = 0; b < 2 * hosts; ++b)
      if (a / 2 != b / 2)
        results.push_back({a,
                           b,
                           "tcp rail 1",
                           5,
                           10,
                           1,
                           0,
                           fmt::format("h{}", a / 2),
                           fmt::format("h{}", b / 2),
                           {1}});
  return results;
}

std::vector<Item> complaints(const std::vector<PairResult>& results) {
  std::vector<Item> items = judge_pairs(results, results.size(), kRealLimits);
  std::erase_if(items, [](const Item& i) { return i.verdict == Verdict::kPass; });
  return items;
}

// One line for its port, not one for each of the pairs that cross it.
TEST(Pairs, AHostThatIsSlowWithAllOthersIsNamed) {
  for (const int hosts : {3, 4, 9}) {
    auto results = between_hosts(hosts);
    EXPECT_THAT(complaints(results), IsEmpty());
    for (PairResult& r : results)
      if (r.from_host == "h2") r.bandwidth_GBps = 3;
    auto items = complaints(results);
    ASSERT_EQ(items.size(), 1u) << hosts;
    EXPECT_EQ(items[0].subject, "host h2 tcp rail 1");
    EXPECT_EQ(items[0].fault, "host-slow-bandwidth");
    EXPECT_THAT(items[0].detail,
                HasSubstr("sends 3.00 to 3.00 GB/s, at most 30 % of the usual 10.00"));
    // Judged by the worst of them.
    for (PairResult& r : results)
      if (r.from_host == "h2" && r.to == 0) r.bandwidth_GBps = 0.5;
    items = complaints(results);
    ASSERT_EQ(items.size(), 1u) << hosts;
    EXPECT_EQ(items[0].verdict, Verdict::kFail);
    // What is slow besides is told, with the hosts.
    for (PairResult& r : results)
      if (r.from == 0 && r.to == 2) r.bandwidth_GBps = 0.5;
    items = complaints(results);
    ASSERT_EQ(items.size(), 2u) << hosts;
    EXPECT_EQ(items[1].subject, "rank 0 (h0) -> rank 2 (h1)");

    results = between_hosts(hosts);
    for (PairResult& r : results)
      if (r.from_host == "h1" || r.to_host == "h1") {
        r.bandwidth_GBps = 3;
        r.latency_us = 200;
      }
    items = complaints(results);
    ASSERT_EQ(items.size(), 3u) << hosts;
    EXPECT_THAT(items[0].detail, HasSubstr("sends"));
    EXPECT_THAT(items[1].detail, HasSubstr("receives"));
    EXPECT_EQ(items[2].fault, "host-slow-latency");
    for (const Item& item : items) EXPECT_EQ(item.subject, "host h1 tcp rail 1");
  }
}

// Their slow pairs tell of one another, and of neither host.
TEST(Pairs, OfTwoHostsThePairsAreNamed) {
  auto results = between_hosts(2);
  for (PairResult& r : results)
    if (r.from_host == "h1") r.bandwidth_GBps = 3;
  const auto items = complaints(results);
  ASSERT_EQ(items.size(), 4u);
  EXPECT_EQ(items[0].subject, "rank 2 (h1) -> rank 0 (h0)");
}

// As the report says of them: "times are judged leniently".
TEST(Pairs, RanksThatTakeTurnsOnCoresAreJudgedLeniently) {
  EXPECT_EQ(&limits_for(false, oversubscribed({{"cores", 4}}, 4)), &kRealLimits);
  EXPECT_EQ(&limits_for(false, oversubscribed({{"cores", 4}}, 5)), &kEmulatedLimits);
  EXPECT_EQ(&limits_for(true, oversubscribed({{"cores", 4}}, 1)), &kEmulatedLimits);
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

TEST(Outages, EachOfTwoHostsAtFaultIsNamed) {
  std::vector<RailOutage> outages;
  for (const char* host : {"a", "b", "c", "d", "e"})
    for (const char* other : {"b", "d"})
      if (host != std::string(other)) outages.push_back({1, host, other, false, "no answer"});
  outages.push_back({1, "d", "a", false, "its link is down"});
  for (RailOutage& o : outages)
    if (o.host == "b" && o.other == "d") o.cause = "its link is down";  // as d told b
  const auto items = judge_outages(outages);
  ASSERT_EQ(items.size(), 2u);
  EXPECT_EQ(items[0].subject, "rail 1 host b");
  EXPECT_THAT(items[0].detail, HasSubstr("hosts a, b, c, e: no answer"));
  EXPECT_EQ(items[1].subject, "rail 1 host d");
  EXPECT_THAT(items[1].detail, HasSubstr("its link is down"));
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
