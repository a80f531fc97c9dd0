// The trial of rivals, and what a profile does to the choice: without ranks.
#include "coll/choice.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <string>

namespace weft {
namespace {

using ::testing::ElementsAre;

Shape four() {
  Shape shape;
  shape.nranks = 4;
  return shape;
}

std::vector<Candidate> some(std::initializer_list<const char*> names) {
  std::vector<Candidate> all;
  for (const char* n : names) {
    Candidate c{find_algorithm(Collective::kAllReduce, n), {}, 0};
    c.prediction.time_us = 10;
    all.push_back(c);
  }
  return all;
}

// Calls until the ranks must agree; every algorithm takes what `us` says.
int run_until_due(Trial& trial, const std::map<std::string, double>& us, int most = 100000) {
  for (int call = 1; call <= most; ++call) {
    const Algorithm* a = trial.next();
    if (trial.wants_time()) trial.took(a, us.at(std::string(a->name)));
    if (trial.due()) return call;
  }
  return 0;
}

TEST(Trial, RunsThePickAtFirst) {
  Trial trial(some({"ring", "direct"}));
  for (std::uint64_t i = 1; i < Trial::kBefore; ++i) {
    EXPECT_EQ(trial.next()->name, "ring");
    EXPECT_FALSE(trial.wants_time());
  }
}

TEST(Trial, ChangesToTheFasterOne) {
  Trial trial(some({"ring", "direct", "tree"}));
  EXPECT_GT(run_until_due(trial, {{"ring", 10}, {"direct", 5}, {"tree", 7}}), 0);
  EXPECT_THAT(trial.testimony(), ElementsAre(10, 5, 7, 0));
  EXPECT_TRUE(trial.decide(trial.testimony()));
  EXPECT_EQ(trial.current()->name, "direct");
  EXPECT_FALSE(trial.due());
  EXPECT_EQ(trial.next()->name, "direct");
}

TEST(Trial, StaysWhereTheGainIsSmall) {
  Trial trial(some({"ring", "direct"}));
  run_until_due(trial, {{"ring", 10}, {"direct", 9.5}});
  EXPECT_FALSE(trial.decide(trial.testimony()));
  EXPECT_EQ(trial.current()->name, "ring");
}

TEST(Trial, OneRankAgainstItIsEnough) {
  Trial trial(some({"ring", "direct"}));
  run_until_due(trial, {{"ring", 10}, {"direct", 1}});
  const double agreed[] = {10, 1, 1};
  EXPECT_FALSE(trial.decide(agreed));
  EXPECT_EQ(trial.current()->name, "ring");
}

TEST(Trial, WhatWasNotTimedIsSaid) {
  Trial trial(some({"ring", "direct"}));
  run_until_due(trial, {{"ring", 10}, {"direct", 1}});
  trial.not_timed();
  EXPECT_EQ(trial.testimony().back(), 1);
}

TEST(Trial, LooksAgainAndGoesBackWhereTimesHaveChanged) {
  Trial trial(some({"ring", "direct"}));
  const int first = run_until_due(trial, {{"ring", 10}, {"direct", 5}});
  EXPECT_TRUE(trial.decide(trial.testimony()));
  const int second = run_until_due(trial, {{"ring", 3}, {"direct", 5}});
  EXPECT_GT(second, 6 * first);  // rarely
  EXPECT_TRUE(trial.decide(trial.testimony()));
  EXPECT_EQ(trial.current()->name, "ring");
}

TEST(Trial, TriesFewAndSeldom) {
  Trial trial(some({"ring", "direct", "tree", "flat", "halving_doubling", "recursive_doubling"}));
  std::map<std::string, int> calls;
  int all = 0;
  while (!trial.due() && all < 100000) ++calls[std::string(trial.next()->name)], ++all;
  EXPECT_EQ(calls.size(), 1 + Trial::kRivals);
  EXPECT_GT(calls["ring"], all * 3 / 4);
}

TEST(Trial, WhatTheModelFindsHopelessIsNotTried) {
  auto all = some({"ring", "direct"});
  all[1].prediction.time_us = 21;
  Trial trial(all);
  EXPECT_EQ(run_until_due(trial, {{"ring", 10}}, 5000), 0);
}

TEST(Trial, EveryRankIsInTheSameState) {
  // Times differ from rank to rank; what runs in which call must not.
  Trial a(some({"ring", "direct", "tree"})), b(some({"ring", "direct", "tree"}));
  for (int call = 0; call < 3000; ++call) {
    const Algorithm *x = a.next(), *y = b.next();
    ASSERT_EQ(x, y) << call;
    ASSERT_EQ(a.due(), b.due()) << call;
    if (a.wants_time()) a.took(x, 3 + call % 5);
    if (b.wants_time() && call % 3) b.took(y, 30 - call % 7);
    if (!a.due()) continue;
    auto says = a.testimony();
    const auto other = b.testimony();
    for (std::size_t i = 0; i < says.size(); ++i) says[i] = std::max(says[i], other[i]);
    ASSERT_EQ(a.decide(says), b.decide(says));
  }
}

TEST(Candidates, TheModelDecidesWithoutAProfile) {
  const CostModel model;
  const auto all = candidates(Collective::kAllReduce, four(), 1 << 20, model, {});
  EXPECT_EQ(all.front().algorithm, pick(Collective::kAllReduce, four(), 1 << 20, model).algorithm);
  EXPECT_EQ(all.front().measured_us, 0);
}

TEST(Candidates, TimesOfTheProfileComeFirst) {
  const CostModel model;
  const Algorithm* picked = pick(Collective::kAllReduce, four(), 1 << 20, model).algorithm;
  Profile profile;
  profile.add(Collective::kAllReduce, four(), 1 << 20, "ring", 50, 5);
  // The model's pick has no time: it could be better still.
  EXPECT_EQ(candidates(Collective::kAllReduce, four(), 1 << 20, model, profile)[0].algorithm,
            picked);
  profile.add(Collective::kAllReduce, four(), 1 << 20, picked->name, 100, 5);
  EXPECT_EQ(candidates(Collective::kAllReduce, four(), 1 << 20, model, profile)[0].algorithm->name,
            "ring");
  // What holds for one size says nothing about one far from it.
  EXPECT_EQ(candidates(Collective::kAllReduce, four(), 64, model, profile)[0].measured_us, 0);
}

}  // namespace
}  // namespace weft
