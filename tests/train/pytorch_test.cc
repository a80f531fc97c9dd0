// A small GPT against PyTorch: logits, gradients and ten losses that make_fixtures.py wrote.
#include <gtest/gtest.h>

#include <cmath>
#include <fstream>
#include <nlohmann/json.hpp>

#include "support/ranks.h"
#include "train/trainer.h"

namespace weft::train {
namespace {

const GptShape kShape{256, 8, 16, 2, 2, true};
constexpr Index kSamples = 3;

nlohmann::json fixture() {
  std::ifstream in(std::string(WEFT_SOURCE_DIR) + "/tests/train/fixtures/tiny_gpt.json");
  return nlohmann::json::parse(in);
}

void fill(Batch& batch, int step) {
  const Index n = kSamples * kShape.positions;
  batch.tokens.resize(n);
  batch.targets.resize(n);
  for (Index i = 0; i < n; ++i) {
    batch.tokens[i] = static_cast<Token>((i * 7 + static_cast<Index>(step) * 13) % 256);
    batch.targets[i] = static_cast<Token>((i * 11 + static_cast<Index>(step) * 5 + 3) % 256);
  }
}

// The place of a tensor in the fixture's list, which is that of a model on one rank.
template <class T>
void run(int tensor_ranks, double tolerance) {
  const nlohmann::json want = fixture();
  set_operator_threads(1);
  testing::run_ranks(testing::places({tensor_ranks}), {}, [&](World& world) {
    Mesh mesh(world, {.tensor = tensor_ranks});
    GptStage<T> stage(kShape, {&mesh.tensor}, {.samples = kSamples});
    OptimizerOptions optimizer{.rate = 1e-3};
    DataParallel<T> store(stage, mesh, {}, optimizer);
    store.fill([&](const Parameter<T>& p, std::size_t k) {
      const double place = static_cast<double>(&p - stage.parameters().data());
      const double i = static_cast<double>(p.logical.logical_index(k));
      return static_cast<T>(std::sin(i + 1 + place) / 10 + (p.ones ? 1 : 0));
    });
    if (tensor_ranks == 1) {
      fill(stage.batch(0), 0);
      const std::vector<Token> tokens(stage.batch(0).tokens.begin(),
                                      stage.batch(0).tokens.begin() + 8);
      const Tensor<T> logits = stage.logits(tokens);
      for (Index v = 0; v < 256; ++v)
        EXPECT_NEAR(logits[7 * 256 + v], want["logits"][v].get<double>(), tolerance) << v;
    }
    for (int step = 0; step < 10; ++step) {
      fill(stage.batch(0), step);
      stage.forward(0, nullptr, nullptr);
      stage.backward(0, nullptr, nullptr);
      store.finish();
      EXPECT_NEAR(stage.batch(0).loss, want["losses"][static_cast<Index>(step)].get<double>(),
                  tolerance)
          << "step " << step;
      if (step == 0 && tensor_ranks == 1)
        for (const Parameter<T>& p : stage.parameters()) {
          const nlohmann::json& g = want["gradients"][p.logical.name];
          const std::size_t n = p.logical.count();
          EXPECT_NEAR(std::sqrt(sum_of_squares(p.gradient, n)), g["norm"].get<double>(), tolerance)
              << p.logical.name;
          for (std::size_t k = 0; k < 4; ++k)
            EXPECT_NEAR(p.gradient[k * (n - 1) / 3], g["elements"][k].get<double>(), tolerance)
                << p.logical.name;
        }
      std::vector<double> squares{store.squares()};
      mesh.tensor.all_reduce(squares.data(), 1);
      const double norm = std::sqrt(squares[0]);
      EXPECT_NEAR(norm, want["norms"][static_cast<Index>(step)].get<double>(), 10 * tolerance);
      // clip_grad_norm_ adds 1e-6 to the norm.
      store.update(step + 1, 1e-3, std::min(1.0, 1 / (norm + 1e-6)));
    }
  });
}

TEST(PyTorch, Fp64) { run<double>(1, 1e-11); }
TEST(PyTorch, Fp64TensorParallel) { run<double>(2, 1e-11); }
TEST(PyTorch, Fp32) { run<float>(1, 2e-5); }

}  // namespace
}  // namespace weft::train
