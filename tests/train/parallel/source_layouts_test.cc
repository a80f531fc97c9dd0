// The source documents' forms of tensor parallelism and of the embedding: losses equal those of one
// process, and gathered data is used.
// labels: sim
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <string>

#include "support/train/curves.h"

namespace weft::train {
namespace {

// Embedding and head only on the first rank of each tensor-parallel group: in one stage, as one
// tensor, and in two stages; ZeRO's parts differ between ranks.
TEST(SourceLayouts, AnOwnerOfTheEmbeddingBroadcasts) {
  for (const auto& sizes : {std::array{1, 4, 1}, {2, 2, 1}, {1, 2, 4}, {2, 2, 2}})
    for (int zero = 0; zero <= (sizes[0] > 1 ? 3 : 0); ++zero) {
      TrainOptions o = narrow(sizes);
      o.embed = "owner";
      o.zero = zero;
      expect_narrow_curve(o);
    }
  TrainOptions o = layout(2, 2, 2);
  o.embed = "owner";
  o.recompute = true;
  expect_curve(o);
  TrainOptions one = narrow({1, 1, 1}), four = narrow({1, 2, 2});
  one.model.tied = four.model.tied = false;
  four.embed = "owner";
  expect_same(train<double>(one, kShortSteps), train<double>(four, kShortSteps), 1e-10, name(four));
}

// Heads that the ranks can split: two of width 12, or one, which no other form can split.
TrainOptions few_heads(const std::array<int, 3>& sizes, Index heads) {
  TrainOptions o = narrow(sizes);
  o.model.heads = heads;
  return o;
}

TEST(SourceLayouts, TensorParallelAsTheSourceDocumentsDrawIt) {
  for (const Index heads : {1u, 2u}) {
    const Result one = train<double>(few_heads({1, 1, 1}, heads), kShortSteps);
    for (const auto& sizes : {std::array{1, 2, 1}, {1, 3, 1}, {1, 4, 1}, {1, 6, 1}, {2, 2, 2}})
      for (const bool recompute : {false, true}) {
        if (recompute == (heads == 1) && sizes[0] == 1) continue;  // one of them per `heads`
        TrainOptions o = few_heads(sizes, heads);
        o.seed_style = true;
        o.recompute = recompute;
        o.zero = sizes[0] > 1 ? 2 : 0;
        o.embed = recompute ? "owner" : "vocab-parallel";
        expect_same(one, train<double>(o, kShortSteps), 1e-10, name(o));
      }
  }
}

// Gathered data is used: a corrupted block in any gather changes the loss. A block's forward pass
// gathers Q, K, the attention's result, and both results of the feed-forward network; its backward
// pass gathers Q and K, which affects the next step's loss.
TEST(SourceLayouts, ACorruptGatherChangesTheLoss) {
  constexpr int kForward = 5, kBackward = 2;
  set_operator_threads(1);
  const Text data = text();
  TrainOptions o = few_heads({1, 2, 1}, 2);
  o.seed_style = true;
  o.micro_batch = o.batch;
  const int layers = static_cast<int>(o.model.layers);
  const auto losses = [&](int corrupted) {
    std::array<double, 2> all{};
    testing::run_ranks(testing::places({2}), {}, [&](World& world) {
      Trainer<double> trainer(world, o, data);
      int gathers = 0;
      trainer.mesh().tensor.after_gather = [&](void* blocks, std::size_t bytes) {
        if (world.rank() != 0 || gathers++ != corrupted) return;
        auto* of_rank_1 = static_cast<double*>(blocks) + bytes / sizeof(double);
        for (std::size_t i = 0; i < bytes / sizeof(double); ++i)
          of_rank_1[i] += 0.1 * static_cast<double>(i % 7);
      };
      for (double& loss : all) {
        const double now = trainer.step().loss;
        if (world.rank() == 0) loss = now;
      }
      if (world.rank() == 0) {
        EXPECT_EQ(gathers, 2 * layers * (kForward + kBackward));
      }
    });
    return all;
  };
  const auto right = losses(-1);
  for (int gather = 0; gather < layers * (kForward + kBackward); ++gather) {
    const auto wrong = losses(gather);
    if (gather < layers * kForward)
      EXPECT_GT(std::abs(wrong[0] - right[0]), 1e-9) << "gather " << gather;
    else
      EXPECT_EQ(wrong[0], right[0]) << "gather " << gather;
    EXPECT_GT(std::abs(wrong[1] - right[1]), 1e-9) << "gather " << gather;
  }
}

}  // namespace
}  // namespace weft::train
