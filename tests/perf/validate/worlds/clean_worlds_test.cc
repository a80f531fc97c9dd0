// In fault-free worlds, contention on uplinks and slow periods of the fleet lead to no finding.
#include <gtest/gtest.h>

#include <algorithm>

#include "perf/validate/locate/ways.h"
#include "perf/validate/worlds/world_run.h"

namespace weft::fabric {
namespace {

WorldRun play_world(const std::string& world, std::uint64_t seed) {
  SimulationOptions options;
  options.hosts = 16;
  options.plan.seed = seed;
  return run_world(world, options);
}

TEST(CleanWorlds, CollisionsOfEcmpAreToldOnceAndAccuseNobody) {
  for (const std::uint64_t seed : {1, 2}) {
    const WorldRun run = play_world("clos", seed);
    EXPECT_EQ(run.report.verdict, Verdict::kOk) << "seed " << seed;
    for (const int rail : {0, 1})
      EXPECT_EQ(std::ranges::count_if(run.report.judgement.findings,
                                      [&](const Finding& finding) {
                                        return finding.id == "flows-meet" &&
                                               finding.severity == Severity::kInfo &&
                                               finding.where.rail == rail;
                                      }),
                1)
          << "seed " << seed;
  }
}

TEST(CleanWorlds, BadMomentsAccuseNobody) {
  for (const std::uint64_t seed : {1, 3})
    EXPECT_EQ(play_world("noise", seed).report.verdict, Verdict::kOk) << "seed " << seed;
}

TEST(CleanWorlds, ASlowPathIsNamedInSpiteOfBadMoments) {
  const WorldRun run = play_world("noise+slow-path", 1004);
  EXPECT_TRUE(std::ranges::any_of(run.report.judgement.findings, [](const Finding& finding) {
    return finding.id == "path-rate" && finding.where.host == "h7" && finding.where.peer == "h3";
  })) << "the looks went elsewhere";
}

Way slow_again(Port from, Port to, int label, double last_s) {
  Way way;
  way.flow = {from, to, 1, label};
  way.all = 2;
  way.last_s = last_s;
  return way;
}

TEST(Ways, WhatWasSlowAgainIsLookedAtAloneOnItsRail) {
  Samples samples;
  samples.rounds = {{Probe::kRate, {}, 0.2, 10}};
  const std::vector<Way> ways = {slow_again({0, 0}, {1, 0}, 101, 5),
                                 slow_again({2, 0}, {3, 0}, 102, 5),
                                 slow_again({4, 1}, {5, 1}, 103, 5)};
  const auto round = look_alone(ways, samples, 0);
  ASSERT_TRUE(round);
  ASSERT_EQ(round->flows.size(), 2U) << "one of each rail";
  EXPECT_EQ(round->flows[0].label, 101) << "the same source port again";
  EXPECT_EQ(round->flows[1].label, 103);
  EXPECT_LT(round->seconds, kApart_s);
}

TEST(Ways, ALookThatCannotWaitLastsBeyondABadMoment) {
  Samples samples;
  samples.rounds = {{Probe::kRate, {}, 0.2, 10}};
  const auto round = look_alone({slow_again({0, 0}, {1, 0}, 101, 10)}, samples, 0);
  ASSERT_TRUE(round);
  EXPECT_GE(round->seconds, kApart_s);
}

TEST(Ways, LooksOfOneMomentCountOnce) {
  EXPECT_DOUBLE_EQ(chance_of_all({{1, 0.1}, {1.2, 0.1}, {1.4, 0.1}}), 0.1);
  EXPECT_DOUBLE_EQ(chance_of_all({{1, 0.1}, {2, 0.1}}), 0.1 * 0.1);
}

}  // namespace
}  // namespace weft::fabric
