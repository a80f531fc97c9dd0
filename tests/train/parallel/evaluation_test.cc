// Evaluation: one loss in every layout, on an unseen text, without changing a bit of the state.
// labels: sim
#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "coll/api/metrics.h"
#include "support/process/temporary_folder.h"
#include "support/train/train_runs.h"
#include "train/checkpoint/checkpoint.h"
#include "train/model/inference.h"

namespace weft::train {
namespace {

// A text that differs from text(), with the same letters.
Text other_text() {
  std::string bytes;
  for (int i = 0; i < 900; ++i) bytes += static_cast<char>('a' + (i * 7 + i * i / 11) % 26);
  return Text(bytes, "another");
}

struct Evaluated {
  Result run;
  std::vector<double> test_losses;  // after each step; the same on every rank
};

Evaluated train_and_evaluate(const TrainOptions& o, int steps, const Text& test) {
  set_operator_threads(1);
  Evaluated all;
  const Text data = text();
  std::vector<std::vector<double>> of_rank(static_cast<std::size_t>(o.mesh.ranks()));
  testing::run_ranks(testing::places({o.mesh.ranks()}), {}, [&](World& world) {
    Trainer<double> trainer(world, o, data);
    auto& mine = of_rank[static_cast<std::size_t>(world.rank())];
    for (int i = 0; i < steps; ++i) {
      const StepReport r = trainer.step();
      if (world.rank() == 0) all.run.losses.push_back(r.loss);
      mine.push_back(trainer.evaluate(test));
    }
    const auto weights = trainer.collect();
    if (world.rank() == 0)
      for (const auto& [name, values] : weights)
        all.run.weights[name].assign(values.begin(), values.end());
  });
  for (const auto& mine : of_rank) EXPECT_EQ(mine, of_rank[0]);
  all.test_losses = of_rank[0];
  return all;
}

std::vector<TrainOptions> layouts() {
  std::vector<TrainOptions> all;
  for (const auto& sizes : {std::array{1, 1, 1}, {4, 1, 1}, {1, 4, 1}, {1, 1, 4}, {2, 2, 2}})
    all.push_back(narrow(sizes));
  for (const int zero : {1, 2, 3}) {
    all.push_back(narrow({2, 1, 2}));
    all.back().zero = zero;
  }
  all.push_back(narrow({1, 1, 2}));
  all.back().schedule = "interleaved";
  all.back().chunks = 2;
  all.push_back(narrow({2, 1, 2}));
  all.back().schedule = "zero-bubble";
  all.back().zero = 3;
  all.push_back(narrow({1, 2, 2}));
  all.back().recompute = true;
  all.back().sequence_parallel = true;
  all.push_back(narrow({2, 1, 1}));
  all.back().model.tied = false;
  all.back().zero = 3;
  return all;
}

TEST(Evaluation, HasOneLossInEveryLayoutAndChangesNoBit) {
  const Text test = other_text();
  std::vector<double> first;
  for (const TrainOptions& o : layouts()) {
    const std::string what = describe(o);
    const Evaluated with = train_and_evaluate(o, 3, test);
    const Result without = train<double>(o, 3);
    EXPECT_EQ(with.run.losses, without.losses) << what;
    EXPECT_EQ(with.run.weights, without.weights) << what;
    if (!o.model.tied) continue;  // another model
    if (first.empty()) first = with.test_losses;
    EXPECT_LE(loss_distance(first, with.test_losses), 1e-10) << what;
    EXPECT_NE(with.test_losses[0], with.test_losses[2]) << what;  // of the current weights
  }
}

// The loss is lower on the training text than on an unseen one.
TEST(Evaluation, TellsATextThatWasTrainedOnFromOneThatWasNot) {
  TrainOptions o = narrow({1, 1, 1});
  o.rate.peak = 1e-2;
  const Evaluated seen = train_and_evaluate(o, 60, text());
  const Evaluated unseen = train_and_evaluate(o, 60, other_text());
  EXPECT_NEAR(seen.test_losses.back(), seen.run.losses.back(), 0.3);
  EXPECT_GT(unseen.test_losses.back(), seen.test_losses.back() + 0.3);
}

TEST(Evaluation, OfATextThatIsShorterThanASampleIsRefused) {
  const Text data = text(), tiny("abc", "three bytes");
  testing::run_ranks(testing::places({1}), {}, [&](World& world) {
    Trainer<double> trainer(world, narrow({1, 1, 1}), data);
    EXPECT_THROW(trainer.evaluate(tiny), UsageError);
    (void)trainer.step();  // training continues
  });
}

TEST(Evaluation, WhatIsHeldOutIsNotTrainedOn) {
  std::string bytes(4000, 'x');
  for (std::size_t i = 3800; i < bytes.size(); ++i) bytes[i] = 'y';
  Text data(bytes, "letters");
  const Text test = data.hold_out();
  EXPECT_EQ(data.size(), 3800u);
  EXPECT_EQ(test.size(), 200u);
  std::vector<Token> tokens(50), targets(50);
  for (std::uint64_t number = 0; number < 3000; ++number) {
    data.sample(1, number, 50, tokens.data(), targets.data());
    ASSERT_EQ(std::count(targets.begin(), targets.end(), Token{'y'}), 0) << number;
    test.sample(1, number, 50, tokens.data(), targets.data());
    ASSERT_EQ(std::count(tokens.begin(), tokens.end(), Token{'x'}), 0) << number;
  }
}

// A checkpoint of eight ranks on one rank: the same loss, with only the weights in memory.
TEST(Inference, OfACheckpointWithoutStateOfTraining) {
  const testing::TemporaryFolder folder;
  set_operator_threads(1);
  const Text data = text(), test = other_text();
  TrainOptions o = narrow({2, 2, 2});
  o.zero = 1;
  double want = 0;
  testing::run_ranks(testing::places({8}), {}, [&](World& world) {
    Trainer<double> trainer(world, o, data);
    for (int i = 0; i < 3; ++i) trainer.step();
    const double loss = trainer.evaluate(test);
    if (world.rank() == 0) want = loss;
    save_checkpoint(world.world(), folder.path(), 3, trainer.pieces());
  });
  testing::run_ranks(testing::places({1}), {}, [&](World& world) {
    Inference<double> model(o.model);
    const double at_random = [&] {
      for (auto& piece : model.pieces()) std::fill_n(piece.data, piece.count, 0.01);
      return model.loss(test, o.seed, o.batch);
    }();
    EXPECT_EQ(load_checkpoint(world.world(), folder.path(), model.pieces()).step, 3);
    EXPECT_NEAR(model.loss(test, o.seed, o.batch) / want, 1, 1e-12);
    EXPECT_GT(std::abs(at_random / want - 1), 1e-3);
    EXPECT_EQ(model.generate("", 5, 1, 3), model.generate("\n", 5, 1, 3));
    EXPECT_EQ(model.generate("abc", 7, 1, 3).size(), 10u);
    const auto& ledger = MemoryLedger::of_this_rank();
    const auto peak = [&](Use use) { return ledger.peak[static_cast<std::size_t>(use)]; };
    EXPECT_EQ(peak(Use::kWeights), parameter_count(o.model) * sizeof(double));
    EXPECT_EQ(peak(Use::kFirstMoment) + peak(Use::kGradients) + peak(Use::kRemoteGradients), 0u);
  });
}

// Every form of tensor parallelism generates the text of one rank, with and without the cache, also
// beyond the model's positions. With the cache, a layout of several ranks sends less, as it
// computes one position per byte.
TEST(Inference, AKvCacheGivesTheSameBytesInEveryLayout) {
  set_operator_threads(1);
  TrainOptions o = narrow({1, 1, 1});
  o.model.heads = 12;  // of width two, which --tp-style seed splits
  const int bytes = static_cast<int>(o.model.positions) + 5;
  std::map<std::string, std::vector<double>> weights;
  std::string want;
  const Text data = text();
  testing::run_ranks(testing::places({1}), {}, [&](World& world) {
    Trainer<double> trainer(world, o, data);
    for (int i = 0; i < 3; ++i) trainer.step();
    weights = trainer.collect();
    Inference<double> model(o.model);
    model.set(weights);
    want = model.generate("abc", bytes, 1, 3);
    EXPECT_EQ(model.generate("abc", bytes, 1, 3, false), want);
    EXPECT_NE(model.generate("abc", bytes, 1, 4), want);
  });
  for (const bool seed : {false, true})
    for (const Embed embed : {Embed::kVocabParallel, Embed::kOwner})
      testing::run_ranks(testing::places({2}), {}, [&](World& world) {
        Axis tensor(world.world());
        Inference<double> model(o.model, {&tensor, false, seed, embed});
        model.set(world.rank() == 0 ? weights : decltype(weights){});
        const auto sent = [&] {
          std::uint64_t all = 0;
          for (const auto& t : world.metrics().traffic) all += t.bytes_sent;
          return all;
        };
        const std::uint64_t begin = sent();
        EXPECT_EQ(model.generate("abc", bytes - 8, 1, 3), want.substr(0, want.size() - 8));
        const std::uint64_t cached = sent() - begin;
        EXPECT_EQ(model.generate("abc", bytes - 8, 1, 3, false), want.substr(0, want.size() - 8));
        EXPECT_GT(sent() - begin - cached, 3 * cached) << seed;
        EXPECT_EQ(model.generate("abc", bytes, 1, 3), want);
      });
}

}  // namespace
}  // namespace weft::train
