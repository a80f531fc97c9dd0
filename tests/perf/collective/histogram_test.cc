// Percentiles of the histogram against sorted samples; its exact extremes and moments.
#include "perf/collective/histogram.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <random>
#include <vector>

#include "perf/stats/stats.h"

namespace weft {
namespace {

TEST(Histogram, OfNothing) {
  const Histogram h;
  EXPECT_EQ(h.count(), 0U);
  EXPECT_EQ(h.min(), 0);
  EXPECT_EQ(h.max(), 0);
  EXPECT_EQ(h.percentile(99), 0);
  EXPECT_EQ(h.deviation(), 0);
}

TEST(Histogram, SmallValuesAreExact) {
  Histogram h;
  for (int v = 1; v <= 100; ++v) h.add(v);
  EXPECT_EQ(h.percentile(1), 1);
  EXPECT_EQ(h.percentile(50), 50);
  EXPECT_EQ(h.percentile(99), 99);
  EXPECT_EQ(h.percentile(99.9), 100);
  EXPECT_DOUBLE_EQ(h.mean(), 50.5);
  EXPECT_NEAR(h.deviation(), std::sqrt((100.0 * 100 - 1) / 12), 1e-9);
}

TEST(Histogram, PercentilesAreWithinOneIn256) {
  std::mt19937_64 random(7);
  Histogram h;
  std::vector<double> samples;
  for (int i = 0; i < 20000; ++i) {
    // Log-uniform from nanoseconds to an hour.
    const auto value = static_cast<std::int64_t>(
        std::exp2(std::uniform_real_distribution<double>(0, 41.7)(random)));
    h.add(value);
    samples.push_back(static_cast<double>(value));
  }
  std::sort(samples.begin(), samples.end());
  EXPECT_EQ(static_cast<double>(h.min()), samples.front());
  EXPECT_EQ(static_cast<double>(h.max()), samples.back());
  for (const double p : {0.1, 1.0, 10.0, 25.0, 50.0, 75.0, 90.0, 99.0, 99.9, 99.99, 100.0}) {
    const double exact = percentile(samples, p);
    const auto found = static_cast<double>(h.percentile(p));
    EXPECT_GE(found, exact) << p;
    EXPECT_LE(found, exact * (1 + 1.0 / 256)) << p;
  }
}

// 99.9 / 100 * 1000 rounds to more than 999: the percentile must not include the worst of a
// thousand values.
TEST(Histogram, PercentilesThatFallOnAValueAreThatValue) {
  for (const std::int64_t whole : {1000, 5000, 10000, 100000}) {
    Histogram h;
    for (std::int64_t i = 0; i < whole; ++i) h.add(i < whole / 1000 * 999 ? 100 : 400);
    EXPECT_EQ(h.percentile(99.9), 100) << whole;
    EXPECT_EQ(h.percentile(99.99), 400) << whole;
  }
}

TEST(Histogram, ADeviationBelowAMicrosecondSurvivesLargeTimes) {
  Histogram h;
  for (int i = 0; i < 1000; ++i) h.add(1'000'000'000 + (i % 2 == 0 ? 100 : -100));
  EXPECT_NEAR(h.deviation(), 100, 1e-6);
  EXPECT_NEAR(h.mean(), 1e9, 1e-3);
}

TEST(Histogram, WhatIsOutOfRangeIsCountedAtTheEnds) {
  Histogram h;
  h.add(-5);
  h.add(INT64_MAX);
  EXPECT_EQ(h.count(), 2U);
  EXPECT_EQ(h.min(), 0);
  EXPECT_EQ(h.max(), INT64_MAX);
  EXPECT_EQ(h.percentile(50), 0);
  EXPECT_GT(h.percentile(100), 0);
}

}  // namespace
}  // namespace weft
