// Measured rates determine which ports are slow, and noise makes no port slow.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <random>
#include <vector>

#include "coll/select/slow_ports.h"

namespace weft {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

// Returns the rates of all ports of four hosts with two rails: 50, times the fraction in `others`.
std::vector<PortRate> measured(const std::vector<PortRate>& others = {}) {
  std::vector<PortRate> all;
  for (int h = 0; h < 4; ++h)
    for (int r = 0; r < 2; ++r) {
      all.push_back({h, r, 50});
      for (const PortRate& p : others)
        if (p.host == h && p.rail == r) all.back().rate *= p.rate;
    }
  return all;
}

TEST(MeasuredPorts, AreSlowByWhatMostReach) {
  EXPECT_THAT(slow_ports_of(measured(), {}), IsEmpty());
  EXPECT_THAT(slow_ports_of(measured({{3, 1, .51}}), {}), ElementsAre(PortRate{3, 1, .5}));
  EXPECT_THAT(slow_ports_of(measured({{3, 1, .26}, {0, 0, 0}, {0, 1, .62}}), {}),
              ElementsAre(PortRate{0, 0, 0}, PortRate{0, 1, .6}, PortRate{3, 1, .25}));
  EXPECT_THAT(slow_ports_of(measured({{2, 0, .3}, {2, 1, .3}}), {}),
              ElementsAre(PortRate{2, 0, .3}, PortRate{2, 1, .3}))
      << "a host";
  EXPECT_THAT(slow_ports_of(measured({{0, 1, .5}, {1, 1, .5}, {2, 1, .5}, {3, 1, .5}}), {}).size(),
              4u)
      << "a rail";
  EXPECT_THAT(slow_ports_of(measured({{0, 1, .5}, {1, 1, .5}, {2, 1, .5}}), {}).size(), 3u)
      << "all but one of a rail";
  EXPECT_THAT(slow_ports_of(measured({{0, 0, 0}, {0, 1, 0}}), {}), IsEmpty())
      << "a host that nothing reaches";
  EXPECT_THAT(slow_ports_of({}, {}), IsEmpty());
}

TEST(MeasuredPorts, StayAsTheyWereUnlessRatesSayClearlyOtherwise) {
  const std::vector<PortRate> half = {{3, 1, .5}};
  for (const double rate : {.43, .5, .57})
    EXPECT_EQ(slow_ports_of(measured({{3, 1, rate}}), half), half) << rate;
  EXPECT_THAT(slow_ports_of(measured({{3, 1, .7}}), half), ElementsAre(PortRate{3, 1, .7}));
  EXPECT_THAT(slow_ports_of(measured({{3, 1, .85}}), half), ElementsAre(PortRate{3, 1, .85}));
  EXPECT_THAT(slow_ports_of(measured({{3, 1, .85}}), {}), IsEmpty());
  EXPECT_THAT(slow_ports_of(measured({{3, 1, .92}}), half), IsEmpty());
}

// With noise of up to a fifth of the rate no healthy port becomes slow. With noise of up to 7 % a
// slow port keeps its fraction in every measurement.
TEST(MeasuredPorts, NoiseChangesNothing) {
  std::mt19937 random(1);
  for (int i = 0; i < 100'000; ++i) {
    std::vector<PortRate> healthy = measured();
    for (PortRate& p : healthy) p.rate *= std::uniform_real_distribution(.81, 1.0)(random);
    ASSERT_THAT(slow_ports_of(healthy, {}), IsEmpty()) << i;
    const std::vector<PortRate> half = {{3, 1, .5}};
    std::vector<PortRate> slow = measured(half);
    for (PortRate& p : slow) p.rate *= std::uniform_real_distribution(.93, 1.0)(random);
    ASSERT_EQ(slow_ports_of(slow, half), half) << i;
  }
}

}  // namespace
}  // namespace weft
