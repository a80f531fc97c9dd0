// Pipeline stages of equal time, although the last stage also computes the head.
// labels: sim
#include "train/model/balance.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <set>
#include <string>

#include "support/train/train_runs.h"
#include "train/model/mfu.h"
#include "train/pipeline/simulator.h"

namespace weft::train {
namespace {

using Counts = std::vector<std::size_t>;

double slowest(const Counts& counts, const std::vector<double>& beside) {
  double most = 0;
  for (std::size_t s = 0; s < counts.size(); ++s)
    most = std::max(most, static_cast<double>(counts[s]) + beside[s]);
  return most;
}

// Minimum over all distributions of blocks, by brute force.
double best(std::size_t blocks, const std::vector<double>& beside) {
  double least = 1e9;
  Counts counts(beside.size(), 1);
  const std::function<void(std::size_t, std::size_t)> deal = [&](std::size_t stage,
                                                                 std::size_t left) {
    if (stage + 1 == counts.size()) {
      counts[stage] = left;
      least = std::min(least, slowest(counts, beside));
      return;
    }
    for (counts[stage] = 1; counts[stage] + (counts.size() - 1 - stage) <= left; ++counts[stage])
      deal(stage + 1, left - counts[stage]);
  };
  deal(0, blocks);
  return least;
}

TEST(Balance, NoWayIsFaster) {
  for (std::size_t stages = 1; stages <= 4; ++stages)
    for (std::size_t blocks = stages; blocks <= 13; ++blocks)
      for (const double first : {0.0, 0.7, 2.2})
        for (const double last : {0.0, 0.2, 1.5, 4.5}) {
          std::vector<double> beside(stages, 0.0);
          beside.front() += first;
          beside.back() += last;
          const Counts counts = balance_blocks(blocks, beside);
          std::size_t all = 0;
          for (const std::size_t n : counts) {
            EXPECT_GE(n, 1u);
            all += n;
          }
          EXPECT_EQ(all, blocks);
          EXPECT_EQ(slowest(counts, beside), best(blocks, beside)) << blocks << " on " << stages;
        }
}

TEST(Balance, WithoutAHeadStagesDifferByOneBlock) {
  EXPECT_EQ(balance_blocks(10, std::vector<double>(4, 0.0)), (Counts{3, 3, 2, 2}));
  EXPECT_EQ(balance_blocks(8, {0, 0, 0, 0.3}), (Counts{2, 2, 2, 2}));
}

// The head of GPT-2 over 50,257 words costs as much as four and a half of its blocks.
TEST(Balance, APipelineOfGpt2IsFaster) {
  const double head = head_in_blocks(
      {.vocabulary = 50257, .positions = 1024, .width = 768, .heads = 12, .layers = 12});
  EXPECT_NEAR(head, 4.46, 0.01);
  const Counts counts = balance_blocks(12, {0, 0, 0, head});
  EXPECT_EQ(counts, (Counts{4, 4, 3, 1}));
  const auto time = [&](const Counts& blocks) {
    PipelineCosts costs;
    costs.weight_of_stage.assign(blocks.begin(), blocks.end());
    costs.weight_of_stage.back() += head;
    return simulate(make_pipeline_schedule("1f1b", {4, 16, 1}), costs).time;
  };
  EXPECT_LT(time(counts), 0.8 * time({3, 3, 3, 3}));
}

// The trainer's stages have these blocks, and its loss curve is that of one process.
TEST(Balance, TheTrainersStagesAreBalanced) {
  TrainOptions o = layout(1, 1, 4);
  o.model = {.vocabulary = 1056, .positions = 8, .width = 24, .heads = 24, .layers = 12};
  const Text data = text();
  set_operator_threads(1);
  testing::run_ranks(testing::places({4}), {}, [&](World& world) {
    Trainer<double> trainer(world, o, data);
    std::set<std::string> blocks;
    for (const auto& piece : trainer.pieces())
      if (piece.logical.name[0] == 'h')
        blocks.insert(piece.logical.name.substr(0, piece.logical.name.find('.')));
    const std::size_t want[] = {4, 4, 3, 1};
    EXPECT_EQ(blocks.size(), want[world.rank()]) << world.rank();
  });
  TrainOptions alone = layout(1, 1, 1);
  alone.model = o.model;
  const Result one = train<double>(alone, 3), four = train<double>(o, 3);
  EXPECT_LE(loss_distance(one.losses, four.losses), 1e-10);
  EXPECT_LE(distance(one.weights, four.weights), 1e-8);
}

}  // namespace
}  // namespace weft::train
