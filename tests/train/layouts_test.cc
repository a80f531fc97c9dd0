// One loss curve for every layout of ranks, and the same weights at its end.
// labels: sim
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cmath>

#include "support/ranks.h"
#include "train/trainer.h"

namespace weft::train {
namespace {

struct Result {
  std::vector<double> losses;
  std::map<std::string, std::vector<double>> weights;
};

Text text() {
  std::string bytes;
  for (int i = 0; i < 4000; ++i)
    bytes += static_cast<char>('a' + (i * i / 7 + i % 13) % 26);
  return Text(bytes, "made up");
}

TrainOptions small() {
  TrainOptions o;
  o.model = {.vocabulary = 264, .positions = 8, .width = 48, .heads = 24, .layers = 8};
  o.batch = 24;
  o.micro_batch = 1;
  o.rate = {.peak = 1e-2, .warm_up = 4};
  o.bucket_bytes = 20000;
  return o;
}

template <class T>
Result train(const TrainOptions& o, int steps, const WorldOptions& world_options = {},
          const std::vector<int>& hosts = {}) {
  set_operator_threads(1);
  Result run;
  const Text data = text();
  const auto where = hosts.empty() ? std::vector<int>{o.mesh.ranks()} : hosts;
  testing::run_ranks(testing::places(where), world_options, [&](World& world) {
    Trainer<T> trainer(world, o, data);
    for (int i = 0; i < steps; ++i) {
      const StepReport r = trainer.step();
      if (world.rank() == 0) run.losses.push_back(r.loss);
    }
    const auto weights = trainer.collect();
    if (world.rank() == 0)
      for (const auto& [name, values] : weights)
        run.weights[name].assign(values.begin(), values.end());
  });
  return run;
}

void expect_same(const Result& one, const Result& other, double tolerance, const std::string& what) {
  ASSERT_EQ(one.losses.size(), other.losses.size()) << what;
  double worst = 0;
  for (std::size_t i = 0; i < one.losses.size(); ++i)
    worst = std::max(worst, std::abs(one.losses[i] - other.losses[i]) / std::abs(one.losses[i]));
  EXPECT_LE(worst, tolerance) << what;
  ASSERT_EQ(one.weights.size(), other.weights.size()) << what;
}

TrainOptions layout(int dp, int tp, int pp) {
  TrainOptions o = small();
  o.mesh.data = dp;
  o.mesh.tensor = tp;
  o.mesh.pipeline = pp;
  return o;
}

constexpr int kSteps = 50;

const Result& alone() {
  static const Result run = train<double>(small(), kSteps);
  return run;
}

TEST(Layouts, TheLossFalls) {
  EXPECT_GT(alone().losses.front(), 5);
  EXPECT_LT(alone().losses.back(), 0.8 * alone().losses.front());
}

TEST(Layouts, DataAndTensorParallel) {
  for (const int n : {6, 8})
    for (int tp = 1; tp <= n; ++tp) {
      if (n % tp != 0) continue;
      const Result run = train<double>(layout(n / tp, tp, 1), kSteps);
      expect_same(alone(), run, 1e-10, fmt::format("dp {} tp {}", n / tp, tp));
    }
}

}  // namespace
}  // namespace weft::train
