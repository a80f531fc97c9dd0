// How a job is folded onto the ranks that there are, which groups play it, how much of it, and how
// long its calls should take.
#include "perf/validate/job_traffic.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "perf/validate/play_traffic.h"

namespace weft::fabric {
namespace {

using Groups = std::vector<std::vector<Rank>>;

// Hosts of so many ranks each, of which rank l is on rail l * rails / ranks.
Players players(const std::vector<int>& ranks, int rails) {
  Players p;
  p.rails = rails;
  Rank next = 0;
  for (const int n : ranks) {
    p.hosts.emplace_back();
    for (int l = 0; l < n; ++l) {
      p.hosts.back().push_back(next++);
      p.rail.push_back(l * rails / n);
    }
  }
  return p;
}

TEST(Fold, AJobThatFitsIsNotFolded) {
  const FoldedJob job = fold({"gpt3", 2, 2, 2}, players({4, 4}, 2));
  EXPECT_FALSE(job.folded);
  EXPECT_EQ(groups_of(job, TrafficAxis::kTensor), (Groups{{0, 1}, {2, 3}, {4, 5}, {6, 7}}));
  EXPECT_EQ(groups_of(job, TrafficAxis::kData), (Groups{{0, 2}, {4, 6}, {1, 3}, {5, 7}}));
  EXPECT_EQ(groups_of(job, TrafficAxis::kPipeline), (Groups{{0, 4}, {2, 6}, {1, 5}, {3, 7}}));
}

TEST(Fold, SpareRanksDoNotPlay) {
  const FoldedJob job = fold({"gpt3", 2, 1, 2}, players({3, 3}, 1));
  EXPECT_FALSE(job.folded);
  EXPECT_EQ(job.order, (std::vector<Rank>{0, 1, 2, 3}));
}

// Tensor parallelism stays inside a host, the other two cross hosts.
TEST(Fold, KeepsTheKindOfGroups) {
  const FoldedJob job = fold({"gpt3", 8, 4, 8}, players({2, 2}, 2));
  EXPECT_TRUE(job.folded);
  EXPECT_EQ(groups_of(job, TrafficAxis::kTensor), (Groups{{0, 1}, {2, 3}}));
  EXPECT_EQ(groups_of(job, TrafficAxis::kData), (Groups{{0, 2}, {1, 3}}));
  EXPECT_EQ(groups_of(job, TrafficAxis::kPipeline), (Groups{{0, 2}, {1, 3}}));
}

TEST(Fold, OneRankAHostHasNoTensorGroups) {
  const FoldedJob job = fold({"gpt3", 8, 4, 8}, players({1, 1, 1}, 1));
  EXPECT_EQ(groups_of(job, TrafficAxis::kTensor), Groups{});
  EXPECT_EQ(groups_of(job, TrafficAxis::kData), (Groups{{0, 1, 2}}));
}

// Of unequal hosts, and where groups do not fill the ranks, some ranks are left over; no rank is in
// two groups, and no group is smaller than another.
TEST(Fold, GroupsAreDisjointAndOfOneSize) {
  for (const auto& hosts : std::vector<std::vector<int>>{{3, 5, 2}, {8, 8}, {1, 7}, {5}, {2, 2, 2}})
    for (const TrafficAsked& asked :
         {TrafficAsked{"", 8, 4, 8}, {"", 2, 3, 64}, {"", 1, 1, 512}, {"", 4, 96, 1}}) {
      const FoldedJob job = fold(asked, players(hosts, 2));
      for (const TrafficAxis axis :
           {TrafficAxis::kTensor, TrafficAxis::kPipeline, TrafficAxis::kData}) {
        std::vector<Rank> seen;
        const Groups groups = groups_of(job, axis);
        for (const auto& group : groups) {
          EXPECT_EQ(group.size(), groups[0].size());
          EXPECT_GE(group.size(), 2u);
          seen.insert(seen.end(), group.begin(), group.end());
        }
        std::ranges::sort(seen);
        EXPECT_EQ(std::ranges::adjacent_find(seen), seen.end());
      }
    }
}

JobTraffic small_job() {
  return {{"gpt3", 8, 4, 8},
          {{64,
            {{TrafficAxis::kTensor, Collective::kAllReduce, false, 1000, 48},
             {TrafficAxis::kPipeline, Collective::kSendRecv, false, 100, 1},
             {TrafficAxis::kTensor, Collective::kAllReduce, false, 1000, 48},
             {TrafficAxis::kPipeline, Collective::kSendRecv, true, 100, 1}}},
           {1, {{TrafficAxis::kData, Collective::kAllReduce, false, 5000, 442}}}}};
}

TEST(Kinds, CountTheCallsOfAStep) {
  const JobTraffic traffic = small_job();
  const JobPlayed played = to_play(traffic, fold(traffic.job, players({2, 2}, 2)));
  ASSERT_EQ(played.kinds.size(), 3u);
  EXPECT_EQ(played.kinds[0].calls, 6144u);
  EXPECT_EQ(played.kinds[1].calls, 128u) << "there and back";
  EXPECT_EQ(played.kinds[2].calls, 442u);
  EXPECT_EQ(played.kinds[2].group, 8);
  EXPECT_EQ(played.kinds[2].played_group, 2);
  EXPECT_EQ(kind_of(played, traffic.beats[0].parts[3]), 1u);
}

TEST(Rhythms, AStepThatFitsIsPlayedWhole) {
  const auto whole = shorten(small_job().beats, 1, 2);
  EXPECT_EQ(whole[0].times, 64u);
  EXPECT_EQ(whole[0].calls, (std::vector<std::uint64_t>{48, 1, 48, 1}));
  EXPECT_EQ(whole[1].calls, (std::vector<std::uint64_t>{442}));
}

TEST(Rhythms, ALongStepKeepsItsOrderAndThreeCallsOfEach) {
  for (const double step_s : {4.0, 100.0, 1e6}) {
    const auto part = shorten(small_job().beats, step_s, 2);
    const double calls = static_cast<double>(part[0].times * part[0].calls[0]);
    EXPECT_GE(part[0].times * part[0].calls[1], 3u);
    EXPECT_GE(part[1].times * part[1].calls[0], 3u);
    EXPECT_LE(calls, std::max(3.0, 1.1 * 64 * 48 * 2 / step_s)) << step_s;
  }
}

// 1 MB between two hosts at 8 Gb/s takes 1 ms; a second group on the same rails doubles it, and one
// on another rail does not.
TEST(Prediction, SharesTheRailsAmongGroups) {
  CostModel costs;
  costs.rail = {10, 8e-4, 0};
  costs.step_us = 0;
  const Players apart = players({2, 2}, 2), together = players({2, 2}, 1);
  const Groups one = {{0, 2}}, two = {{0, 2}, {1, 3}};
  const auto send_us = [&](const Groups& groups, const Players& p) {
    return predicted_us(Collective::kSendRecv, 1'000'000, groups, p, costs, 8);
  };
  EXPECT_DOUBLE_EQ(send_us(one, together), 1010);
  EXPECT_DOUBLE_EQ(send_us(two, together), 2010);
  EXPECT_DOUBLE_EQ(send_us(two, apart), 1010);
  // An all_reduce of two hosts moves the message once each way, whatever the algorithm.
  const double reduced = predicted_us(Collective::kAllReduce, 1'000'000, one, apart, costs, 8);
  EXPECT_GE(reduced, 1000);
  EXPECT_LE(reduced, 1500);
}

TEST(Prediction, OfAGroupInsideAHostKnowsNoRails) {
  CostModel costs;
  const Players p = players({4, 4}, 2);
  const auto inside = [&](double slowest_gbps) {
    return predicted_us(Collective::kAllReduce, 1'000'000, {{0, 1}, {2, 3}}, p, costs,
                        slowest_gbps);
  };
  EXPECT_DOUBLE_EQ(inside(1), inside(100));
  EXPECT_GT(inside(1), 0);
}

}  // namespace
}  // namespace weft::fabric
