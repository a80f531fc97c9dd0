// Percentiles, the slowest rank, and nccl-tests' bandwidths.
#include "perf/stats/stats.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <numeric>
#include <vector>

namespace weft {
namespace {

using ::testing::ElementsAre;

TEST(Stats, PercentilesAreSamplesByNearestRank) {
  std::vector<double> hundred(100);
  std::iota(hundred.begin(), hundred.end(), 1);
  EXPECT_EQ(percentile(hundred, 50), 50);
  EXPECT_EQ(percentile(hundred, 99), 99);
  EXPECT_EQ(percentile(hundred, 99.5), 100);
  EXPECT_EQ(percentile(hundred, 100), 100);
  const std::vector<double> one = {7};
  EXPECT_EQ(percentile(one, 1), 7);
  EXPECT_EQ(percentile(one, 99), 7);
  EXPECT_EQ(median({4, 1, 3, 2}), 2);
  EXPECT_EQ(median({5, 1, 3}), 3);
}

TEST(Stats, SummarizesSamplesInAnyOrder) {
  const Summary s = summarize({30, 10, 20, 50, 40});
  EXPECT_EQ(s.min, 10);
  EXPECT_EQ(s.p50, 30);
  EXPECT_EQ(s.p99, 50);
  EXPECT_EQ(s.max, 50);
}

TEST(Stats, AnOperationTakesAsLongAsItsSlowestRank) {
  const std::vector<std::vector<double>> times = {{1, 9, 3}, {2, 4, 8}, {5, 5, 5}};
  EXPECT_THAT(slowest_rank(times), ElementsAre(5, 9, 8));
}

TEST(Stats, BusBandwidthFactorsAreThoseOfNcclTests) {
  EXPECT_DOUBLE_EQ(busbw_factor(Collective::kAllReduce, 4), 1.5);
  EXPECT_DOUBLE_EQ(busbw_factor(Collective::kAllReduce, 1), 0);
  EXPECT_DOUBLE_EQ(busbw_factor(Collective::kAllGather, 4), 0.75);
  EXPECT_DOUBLE_EQ(busbw_factor(Collective::kReduceScatter, 8), 0.875);
  EXPECT_DOUBLE_EQ(busbw_factor(Collective::kBroadcast, 8), 1);
  EXPECT_DOUBLE_EQ(busbw_factor(Collective::kSendRecv, 8), 1);
}

TEST(Stats, AlgorithmBandwidthIsBytesOverTime) {
  EXPECT_DOUBLE_EQ(algbw_gbps(1000000, 1000), 1);  // 1 MB in 1 ms is 1 GB/s
  EXPECT_EQ(algbw_gbps(1000, 0), 0);
}

TEST(Stats, IterationsFillTheBudgetWithinLimits) {
  EXPECT_EQ(iterations_for(1000, 500e3), 500);
  EXPECT_EQ(iterations_for(1e6, 500e3), 5);
  EXPECT_EQ(iterations_for(1, 500e3), 2000);
  EXPECT_EQ(iterations_for(0, 500e3), 2000);
}

TEST(Stats, RanksGiveOneTimeAsNcclTestsHasIt) {
  const std::vector<std::vector<double>> times = {{1, 9, 3}, {5, 2, 8}, {3, 1, 1}};
  EXPECT_THAT(times_of(times, OfRanks::kFirst), ElementsAre(1, 9, 3));
  EXPECT_THAT(times_of(times, OfRanks::kMean), ElementsAre(3, 4, 4));
  EXPECT_THAT(times_of(times, OfRanks::kLeast), ElementsAre(1, 1, 1));
  EXPECT_THAT(times_of(times, OfRanks::kMost), ElementsAre(5, 9, 8));
}

TEST(Stats, OutOfLineIsWorseThanTheOthersDiffer) {
  EXPECT_THAT(out_of_line({10, 10, 5}, false), ElementsAre(false, false, true));
  EXPECT_THAT(out_of_line({10, 10, 5}, true), ElementsAre(false, false, false));
  EXPECT_THAT(out_of_line({10, 10, 9.5}, false), ElementsAre(false, false, false));  // a tenth
  EXPECT_THAT(out_of_line({6, 8, 10, 12, 14}, false), ::testing::Each(false));
  EXPECT_TRUE(out_of_line({}, true).empty());
}

}  // namespace
}  // namespace weft
