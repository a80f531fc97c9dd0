// One loss curve for every layout of ranks, and the same weights at its end.
// labels: sim
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <array>
#include <atomic>
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
  o.rate = {.peak = 3e-3, .warm_up = 4};
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
  fmt::print("{}: {:.2g}\n", what, worst);
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

std::string name(const TrainOptions& o) {
  return fmt::format("dp {} tp {} pp {} order {} {} chunks {} zero {} groups of {}{}{}",
                     o.mesh.data, o.mesh.tensor, o.mesh.pipeline, o.mesh.order, o.schedule,
                     o.chunks, o.zero, o.mesh.shard, o.sequence_parallel ? " sequence" : "",
                     fmt::format("{}{}", o.vocab_parallel ? "" : " replicated",
                                 o.seed_style ? " seed" : ""));
}
void expect_curve(const TrainOptions& o, int steps = 20) {
  Result one = alone();
  one.losses.resize(static_cast<std::size_t>(steps));
  expect_same(one, train<double>(o, steps), 1e-10, name(o));
}

TEST(Layouts, EveryFactorisationOf8And6) {
  for (const int n : {8, 6})
    for (int tp = 1; tp <= n; ++tp)
      for (int pp = 1; n % tp == 0 && pp <= n / tp; ++pp)
        if (n / tp % pp == 0) expect_curve(layout(n / tp / pp, tp, pp), kSteps);
}

TEST(Layouts, EverySchedule) {
  for (const std::string& schedule : pipeline_schedule_names()) {
    TrainOptions o = layout(1, 1, 4);
    o.schedule = schedule;
    o.chunks = schedule == "interleaved" ? 2 : 1;
    expect_curve(o);
  }
}

TEST(Layouts, ZeroInAllStages) {
  for (int zero = 1; zero <= 3; ++zero) {
    TrainOptions o = layout(4, 1, 1);
    o.zero = zero;
    expect_curve(o);
    o = layout(2, 2, 2);
    o.zero = zero;
    o.schedule = zero == 3 ? "zero-bubble" : "1f1b";
    expect_curve(o);
    o = layout(4, 1, 1);  // MiCS: two groups of two
    o.zero = zero;
    o.mesh.shard = 2;
    expect_curve(o);
  }
}

TEST(Layouts, OtherWays) {
  TrainOptions o = layout(2, 2, 2);
  o.sequence_parallel = true;
  expect_curve(o);
  o.zero = 2;
  o.recompute = true;
  expect_curve(o);
  o = layout(1, 4, 1);
  o.vocab_parallel = false;
  expect_curve(o);
  o.seed_style = true;
  expect_curve(o);
  o = layout(2, 2, 2);
  o.seed_style = true;
  o.zero = 2;
  expect_curve(o);
  o = layout(2, 2, 2);
  o.mesh.order = "pp,dp,tp";
  o.overlap = false;
  expect_curve(o);
  o.micro_batch = 3;
  expect_curve(o);
}

TEST(Layouts, UntiedHead) {
  TrainOptions one = small(), eight = layout(2, 2, 2);
  one.model.tied = eight.model.tied = false;
  expect_same(train<double>(one, 20), train<double>(eight, 20), 1e-10, name(eight));
}

// By SGD with momentum: AdamW divides by what is rounding only where a gradient is zero, as that of
// a key's bias, and such weights walk at random (2e-5 after these 50 steps).
TEST(Layouts, Fp32) {
  TrainOptions alone = small();
  alone.optimizer.adam = false;
  alone.rate.peak = 0.1;
  const Result one = train<float>(alone, kSteps);
  for (const auto& [dp, tp, pp] : {std::array{8, 1, 1}, {1, 8, 1}, {1, 1, 8}, {2, 2, 2}}) {
    TrainOptions o = layout(dp, tp, pp);
    o.optimizer = alone.optimizer;
    o.rate = alone.rate;
    expect_same(one, train<float>(o, kSteps), 1e-5, name(o));
  }
}

// The deterministic mode: the same bits for every number of replicas and every algorithm.
TEST(Layouts, DeterministicIsBitwise) {
  TrainOptions o = small();
  o.deterministic = true;
  const Result one = train<float>(o, 10);
  for (const int dp : {2, 4, 8})
    for (const bool hosts : {false, true}) {
      TrainOptions many = o;
      many.mesh.data = dp;
      WorldOptions options;
      options.deterministic = true;
      std::vector<int> where{dp};
      if (hosts) where = {dp / 2, dp / 2};
      const Result run = train<float>(many, 10, options, where);
      EXPECT_EQ(one.losses, run.losses) << dp;
      EXPECT_EQ(one.weights, run.weights) << dp;
    }
}

TEST(Layouts, OptionsThatCannotBeAreNamed) {
  const auto refused = [](const TrainOptions& o, const char* why) {
    try {
      const Text data = text();
      testing::run_ranks(testing::places({1}), {}, [&](World& world) {
        EXPECT_THROW(
            {
              try {
                Trainer<float> trainer(world, o, data);
              } catch (const Error& e) {
                EXPECT_NE(std::string(e.what()).find(why), std::string::npos) << e.what();
                throw;
              }
            },
            Error);
      });
    } catch (const Error&) {
    }
  };
  TrainOptions o = small();
  o.mesh.data = 2;
  refused(o, "--dp 2 x --tp 1 x --pp 1 = 2, but the job has 1 ranks");
  o = small();
  o.batch = 7, o.micro_batch = 2;
  refused(o, "--batch 7");
  o = small();
  o.mesh.order = "dp,dp,pp";
  refused(o, "--order dp,dp,pp");
}

// A scale that fp32 cannot hold: steps are skipped and the scale halves until they are not, then
// the curve is that without scaling (a power of two changes no digit).
TEST(Layouts, LossScaling) {
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
  o.loss_scale = 0x1p10;
  const Result scaled = train<float>(o, 5);
  EXPECT_EQ(one.losses, scaled.losses);
}

// A rank with another batch size is named, on every rank, and nobody waits.
TEST(Layouts, RanksThatDifferAreNamed) {
  const Text data = text();
  std::atomic<int> named{0};
  testing::run_ranks(testing::places({3}), {}, [&](World& world) {
    TrainOptions o = layout(3, 1, 1);
    if (world.rank() == 2) o.batch = 12;
    try {
      Trainer<float> trainer(world, o, data);
    } catch (const UsageError& e) {
      EXPECT_STREQ(e.what(),
                   "rank 2 has batch 12, rank 0 has 24; give every rank the same options and data");
      ++named;
    }
  });
  EXPECT_EQ(named, 3);
}

}  // namespace
}  // namespace weft::train
