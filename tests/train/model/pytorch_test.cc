// A small GPT against PyTorch, with a tied and with an untied head: every logit, every gradient,
// and the losses and norms of ten steps, from make_fixtures.py.
#include <gtest/gtest.h>

#include <cmath>
#include <fstream>
#include <nlohmann/json.hpp>

#include "support/jobs/ranks.h"
#include "train/trainer.h"

namespace weft::train {
namespace {

constexpr Index kSamples = 3;

GptShape shape_of_fixture(bool tied) {
  return {.vocabulary = 72, .positions = 8, .width = 16, .heads = 2, .layers = 2, .tied = tied};
}

nlohmann::json fixture() {
  std::ifstream in(std::string(WEFT_SOURCE_DIR) + "/tests/train/fixtures/tiny_gpt.json");
  return nlohmann::json::parse(in);
}

void fill(Batch& batch, const GptShape& shape, int step) {
  const Index n = kSamples * shape.positions, v = shape.vocabulary;
  batch.tokens.resize(n);
  batch.targets.resize(n);
  for (Index i = 0; i < n; ++i) {
    batch.tokens[i] = static_cast<Token>((i * 7 + static_cast<Index>(step) * 13) % v);
    batch.targets[i] = static_cast<Token>((i * 11 + static_cast<Index>(step) * 5 + 3) % v);
  }
}

template <class T>
void run_fixture(bool tied, int tensor_ranks, double tolerance) {
  const nlohmann::json all = fixture(), want = all[tied ? "tied" : "untied"];
  const double unit = all["unit"];
  const GptShape shape = shape_of_fixture(tied);
  set_operator_threads(1);
  testing::run_ranks(testing::places({tensor_ranks}), {}, [&](World& world) {
    Mesh mesh(world, {.tensor = tensor_ranks});
    GptStage<T> stage(shape, {&mesh.tensor}, {.samples = kSamples});
    DataParallel<T> store(stage, mesh, {}, {});
    store.fill([&](const Parameter<T>& p, std::size_t k) {
      // Index of the tensor in the fixture's list, which is that of a model on one rank.
      const double place = static_cast<double>(&p - stage.parameters().data());
      const double i = static_cast<double>(p.logical.logical_index(k));
      return static_cast<T>(std::sin(i + 1 + place) / 10 + (p.ones ? 1 : 0));
    });
    if (tensor_ranks == 1) {
      fill(stage.batch(0), shape, 0);
      const auto& tokens = stage.batch(0).tokens;
      const Index each = shape.positions * shape.vocabulary;
      ASSERT_EQ(want["logits"].size(), kSamples * each);
      for (Index s = 0; s < kSamples; ++s) {
        const auto first = tokens.begin() + static_cast<std::ptrdiff_t>(s * shape.positions);
        const Tensor<T> logits =
            stage.logits({first, first + static_cast<std::ptrdiff_t>(shape.positions)});
        for (Index i = 0; i < each; ++i)
          ASSERT_NEAR(logits[i], want["logits"][s * each + i].template get<double>() * unit,
                      tolerance)
              << "sample " << s << ", element " << i;
      }
    }
    for (int step = 0; step < 10; ++step) {
      fill(stage.batch(0), shape, step);
      stage.forward(0, {});
      stage.backward(0, {});
      store.finish();
      EXPECT_NEAR(stage.take_losses()[0],
                  want["losses"][static_cast<Index>(step)].template get<double>(), tolerance)
          << "step " << step;
      if (step == 0) {
        EXPECT_EQ(stage.parameters().size(), want["gradients"].size());
        for (const Parameter<T>& p : stage.parameters()) {
          const nlohmann::json& g = want["gradients"][p.logical.name];
          ASSERT_EQ(g.size(), p.logical.logical_count()) << p.logical.name;
          for (std::size_t k = 0; k < p.logical.count(); ++k)
            ASSERT_NEAR(p.gradient[k], g[p.logical.logical_index(k)].template get<double>() * unit,
                        tolerance)
                << p.logical.name << ", element " << k;
        }
      }
      std::vector<double> squares{store.squares()};
      mesh.tensor.all_reduce(squares.data(), 1);
      const double norm = std::sqrt(squares[0]);
      EXPECT_NEAR(norm, want["norms"][static_cast<Index>(step)].template get<double>(),
                  10 * tolerance);
      // clip_grad_norm_ adds 1e-6 to the norm.
      store.update(step + 1, 1e-3, std::min(1.0, 1 / (norm + 1e-6)));
    }
  });
}

TEST(PyTorch, Fp64) {
  for (const bool tied : {true, false}) run_fixture<double>(tied, 1, 1e-11);
}
TEST(PyTorch, Fp64TensorParallel) {
  for (const bool tied : {true, false}) run_fixture<double>(tied, 2, 1e-11);
}
TEST(PyTorch, Fp32) {
  for (const bool tied : {true, false}) run_fixture<float>(tied, 1, 2e-5);
}

}  // namespace
}  // namespace weft::train
