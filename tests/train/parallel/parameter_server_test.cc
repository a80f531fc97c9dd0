// The GPT with a parameter server: the results equal those of the all-reduce.
// labels: multiproc
#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <vector>

#include "support/train/train_runs.h"

namespace weft::train {
namespace {

TrainOptions served(int dp, int tp, int pp) {
  TrainOptions o = layout(dp, tp, pp);
  o.model.layers = 2;
  o.parameter_server = true;
  return o;
}

TEST(GptParameterServer, HasTheResultsOfTheAllReduce) {
  TrainOptions one = served(1, 1, 1);
  one.parameter_server = false;
  const Result expected = train<double>(one, 6);
  for (const auto& [dp, tp, pp] : {std::array{2, 1, 1}, {4, 1, 1}, {3, 2, 1}, {2, 2, 2}}) {
    SCOPED_TRACE(::testing::Message() << dp << " x " << tp << " x " << pp);
    for (const bool overlap : {true, false}) {
      TrainOptions o = served(dp, tp, pp);
      o.overlap = overlap;
      const Result r = train<double>(o, 6);
      ASSERT_EQ(r.losses.size(), expected.losses.size());
      for (std::size_t i = 0; i < r.losses.size(); ++i)
        EXPECT_NEAR(r.losses[i] / expected.losses[i], 1, 1e-12) << "step " << i + 1;
    }
  }
}

TEST(GptParameterServer, HasTheSameBitsWhereWeftIsDeterministic) {
  TrainOptions o = layout(1, 1, 1);
  o.model.layers = 2;
  o.deterministic = true;
  WorldOptions deterministic;
  deterministic.deterministic = true;
  const Result expected = train<float>(o, 4, deterministic);
  for (const int dp : {2, 4}) {
    TrainOptions with = served(dp, 1, 1);
    with.deterministic = true;
    const Result r = train<float>(with, 4, deterministic);
    EXPECT_EQ(r.losses, expected.losses) << dp;
    EXPECT_EQ(r.weights, expected.weights) << dp;
  }
}

// Only the first replica has moments, and every replica has its weights.
TEST(GptParameterServer, AloneHasTheOptimizersState) {
  const TrainOptions o = served(3, 1, 1);
  const Text data = text();
  testing::run_ranks(testing::places({3}), {}, [&](World& world) {
    Trainer<double> trainer(world, o, data);
    trainer.step();
    std::size_t weights = 0, moments = 0;
    double sum = 0;
    for (const auto& piece : trainer.pieces()) {
      const std::string& name = piece.logical.name;
      const bool state = name.ends_with("/m") || name.ends_with("/v");
      (state ? moments : weights) += piece.count;
      if (!state)
        for (std::size_t i = 0; i < piece.count; ++i) sum += std::abs(piece.data[i]);
    }
    EXPECT_GT(weights, 0u);
    EXPECT_EQ(moments, world.rank() == 0 ? 2 * weights : 0u);
    double of_rank_0 = sum;
    world.world().broadcast(&of_rank_0, &of_rank_0, 1, DType::kFloat64, 0).check();
    EXPECT_EQ(sum, of_rank_0);
  });
}

TEST(GptParameterServer, SplitsNothing) {
  TrainOptions o = served(2, 1, 1);
  o.zero = 2;
  const Text data = text();
  testing::run_ranks(testing::places({2}), {}, [&](World& world) {
    EXPECT_THROW(Trainer<double>(world, o, data), UsageError);
  });
}

}  // namespace
}  // namespace weft::train
