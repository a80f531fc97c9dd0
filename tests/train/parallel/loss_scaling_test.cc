// Steps with infinite gradients are skipped, halve the scale, and do not count as updates.
// labels: sim
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "support/train/train_runs.h"

namespace weft::train {
namespace {

using Weights = std::map<std::string, std::vector<float>>;

// AdamW's first update without decay changes weights by at most the rate.
void expect_adams_first(const World& world, const Weights& before, const Weights& after,
                        const StepReport& step) {
  if (world.rank() != 0) return;
  double most = 0;
  for (const auto& [name, values] : before)
    for (std::size_t i = 0; i < values.size(); ++i)
      most = std::max(most, std::abs(double{after.at(name)[i]} - values[i]));
  EXPECT_NEAR(most, step.rate, 0.01 * step.rate);
}

// A scale that overflows fp32: steps are skipped, and the scale halves until steps succeed. Then
// the curve equals that without scaling (a power of two is exact).
TEST(LossScaling, HalvesUntilStepsAreFinite) {
  TrainOptions o = layout(2, 1, 1);
  const Result one = train<float>(o, 5);
  o.loss_scale = 0x1p134;
  set_operator_threads(1);
  const Text data = text();
  testing::run_ranks(testing::places({2}), {}, [&](World& world) {
    Trainer<float> trainer(world, o, data);
    const StepReport r = trainer.step();
    EXPECT_TRUE(r.skipped);
    int skipped = 1;
    while (trainer.step().skipped) ASSERT_LT(++skipped, 60);
    EXPECT_GT(skipped, 1);
  });
  // The first update is AdamW's first, regardless of skipped steps: about the rate.
  o.optimizer.decay = 0;
  testing::run_ranks(testing::places({2}), {}, [&](World& world) {
    Trainer<float> trainer(world, o, data);
    const auto before = trainer.collect();
    StepReport r;
    for (int i = 0; i < 60 && (i == 0 || r.skipped); ++i) r = trainer.step();
    ASSERT_FALSE(r.skipped);
    expect_adams_first(world, before, trainer.collect(), r);
  });
  o.optimizer.decay = TrainOptions().optimizer.decay;
  o.loss_scale = 0x1p10;
  const Result scaled = train<float>(o, 5);
  EXPECT_EQ(one.losses, scaled.losses);
}

// A step skipped without loss scaling does not count as an update either.
TEST(LossScaling, TheFirstUpdateAfterASkippedStepIsAdamsFirst) {
  TrainOptions o = layout(2, 1, 1);
  o.optimizer.decay = 0;
  o.rate.warm_up = 0;
  set_operator_threads(1);
  const Text data = text();
  testing::run_ranks(testing::places({2}), {}, [&](World& world) {
    Trainer<float> trainer(world, o, data);
    const auto first_position = [&](float value) {
      for (auto& piece : trainer.pieces())
        if (piece.logical.name == "wpe" && piece.begin == 0) std::swap(*piece.data, value);
      trainer.restored();
      return value;
    };
    const float before = first_position(INFINITY);
    EXPECT_TRUE(trainer.step().skipped);
    first_position(before);
    const auto weights = trainer.collect();
    const StepReport r = trainer.step();
    ASSERT_FALSE(r.skipped);
    expect_adams_first(world, weights, trainer.collect(), r);
  });
}

}  // namespace
}  // namespace weft::train
