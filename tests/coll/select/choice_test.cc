// The effect of a profile on the choice, without running ranks.
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
  // The model's pick has not been measured: it could be faster still.
  EXPECT_EQ(candidates(Collective::kAllReduce, four(), 1 << 20, model, profile)[0].algorithm,
            picked);
  profile.add(Collective::kAllReduce, four(), 1 << 20, picked->name, 100, 5);
  EXPECT_EQ(candidates(Collective::kAllReduce, four(), 1 << 20, model, profile)[0].algorithm->name,
            "ring");
  // A measured size says nothing about a distant one.
  EXPECT_EQ(candidates(Collective::kAllReduce, four(), 64, model, profile)[0].measured_us, 0);
}

}  // namespace
}  // namespace weft
