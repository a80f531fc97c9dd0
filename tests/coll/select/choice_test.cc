// What a profile does to the choice: without ranks.
#include "coll/select/choice.h"

#include <gtest/gtest.h>

namespace weft {
namespace {

Shape four() {
  Shape shape;
  shape.nranks = 4;
  return shape;
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
