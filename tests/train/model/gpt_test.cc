// The model's gradients on one rank: finite differences in fp64, recomputation, accumulation.
#include <gtest/gtest.h>

#include <cmath>
#include <random>

#include "support/jobs/ranks.h"
#include "train/parallel/data_parallel.h"

namespace weft::train {
namespace {

Batch& fill(Batch& batch, const GptShape& shape, unsigned seed) {
  std::mt19937 dice(seed);
  const Index n = batch.samples * shape.positions;
  for (auto* tokens : {&batch.tokens, &batch.targets}) {
    tokens->resize(n);
    for (Token& t : *tokens) t = static_cast<Token>(dice() % shape.vocabulary);
  }
  return batch;
}

struct Model {
  Model(World& world, const GptShape& shape, GptStage<double>::Options options,
        DataParallelOptions parallel = {})
      : mesh(world, {}), stage(shape, {&mesh.tensor}, options), store(stage, mesh, parallel, {}) {
    store.initialise(1);
    // Randomizes norms and biases, since initial values would hide errors.
    std::mt19937 dice(3);
    std::normal_distribution<double> normal;
    for (auto& p : stage.parameters())
      for (std::size_t k = 0; k < p.logical.count(); ++k) p.value[k] += 0.1 * normal(dice);
  }
  double loss(int m) {
    stage.forward(m, {});
    return stage.take_losses()[static_cast<std::size_t>(m)];
  }
  std::vector<double> gradients() {
    std::vector<double> all;
    for (auto& p : stage.parameters())
      all.insert(all.end(), p.gradient, p.gradient + p.logical.count());
    return all;
  }
  Mesh mesh;
  GptStage<double> stage;
  DataParallel<double> store;
};

void alone(const std::function<void(World&)>& body) {
  set_operator_threads(1);
  testing::run_ranks(testing::places({1}), {}, body);
}

TEST(Gpt, FiniteDifferences) {
  for (const bool tied : {true, false})
    alone([&](World& world) {
      const GptShape shape{11, 5, 8, 2, 2, tied};
      Model model(world, shape, {.samples = 2});
      fill(model.stage.batch(0), shape, 7);
      model.loss(0);
      model.stage.backward(0, {});
      std::mt19937 dice(5);
      for (auto& p : model.stage.parameters())
        for (int i = 0; i < 4; ++i) {
          const std::size_t k = dice() % p.logical.count();
          const double before = p.value[k], h = 1e-5;
          p.value[k] = before + h;
          const double up = model.loss(0);
          p.value[k] = before - h;
          const double down = model.loss(0);
          p.value[k] = before;
          EXPECT_NEAR(p.gradient[k], (up - down) / (2 * h), 1e-8) << p.logical.name << ' ' << k;
        }
    });
}

TEST(Gpt, ParametersAreCounted) {
  alone([&](World& world) {
    for (const bool tied : {true, false}) {
      const GptShape shape{256, 16, 32, 4, 3, tied};
      Model model(world, shape, {});
      EXPECT_EQ(model.stage.flat_count(), parameter_count(shape));
    }
    const GptShape gpt2{50257, 1024, 768, 12, 12, true};
    EXPECT_EQ(parameter_count(gpt2), 124439808u);
  });
}

// Activation checkpointing: the same bits, and a lower memory peak.
TEST(Gpt, RecomputedGradientsAreTheSameBits) {
  alone([&](World& world) {
    const GptShape shape{64, 16, 32, 4, 6, true};
    std::vector<double> gradients[2];
    std::size_t peak[2], kept[2];
    for (int i = 0; i < 2; ++i) {
      Model model(world, shape, {.samples = 4, .recompute = i == 1});
      fill(model.stage.batch(0), shape, 7);
      auto& ledger = MemoryLedger::of_this_rank();
      ledger.peak_total = ledger.total;
      const std::size_t before = ledger.total;
      model.loss(0);
      const auto& now = ledger.now;
      kept[i] = now[static_cast<std::size_t>(Use::kWeightedSums)] +
                now[static_cast<std::size_t>(Use::kActivations)];
      model.stage.backward(0, {});
      peak[i] = ledger.peak_total - before;
      EXPECT_EQ(ledger.total, before);
      gradients[i] = model.gradients();
    }
    EXPECT_EQ(gradients[0], gradients[1]);
    EXPECT_LT(peak[1], peak[0] / 2);
    EXPECT_LT(kept[1], kept[0] / 3);
  });
}

// k micro-batches equal one large batch; B and W may be separate, in any order.
TEST(Gpt, AccumulationIsOneLargeBatch) {
  alone([&](World& world) {
    const GptShape shape{32, 8, 16, 2, 2, true};
    Model whole(world, shape, {.samples = 4}), parts(world, shape, {.samples = 2});
    fill(whole.stage.batch(0), shape, 9);
    const double of_whole = whole.loss(0);
    whole.stage.backward(0, {});
    const Batch& b = whole.stage.batch(0);
    for (int m = 0; m < 2; ++m) {
      Batch& half = parts.stage.batch(m);
      half.gradient_scale = 0.5;
      half.tokens.assign(b.tokens.begin() + m * 16, b.tokens.begin() + m * 16 + 16);
      half.targets.assign(b.targets.begin() + m * 16, b.targets.begin() + m * 16 + 16);
    }
    const double loss = (parts.loss(0) + parts.loss(1)) / 2;
    EXPECT_NEAR(loss, of_whole, 1e-14);
    parts.stage.backward_input(0, {});
    parts.stage.backward_input(1, {});
    parts.stage.backward_weight(0);
    parts.stage.backward_weight(1);
    const auto one = whole.gradients(), two = parts.gradients();
    for (std::size_t i = 0; i < one.size(); ++i) ASSERT_NEAR(one[i], two[i], 1e-14);
  });
}

}  // namespace
}  // namespace weft::train
