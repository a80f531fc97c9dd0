// One loss curve for every layout of ranks, and the same weights at its end.
// labels: sim
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <atomic>
#include <cmath>

#include "support/train_runs.h"

namespace weft::train {
namespace {

void expect_same(const Result& one, const Result& other, double tolerance,
                 const std::string& what) {
  ASSERT_EQ(one.losses.size(), other.losses.size()) << what;
  double worst = 0;
  for (std::size_t i = 0; i < one.losses.size(); ++i)
    worst = std::max(worst, std::abs(one.losses[i] - other.losses[i]) / std::abs(one.losses[i]));
  EXPECT_LE(worst, tolerance) << what;
  fmt::print("{}: {:.2g}\n", what, worst);
  ASSERT_EQ(one.weights.size(), other.weights.size()) << what;
}

constexpr int kCurveSteps = 50;

const Result& alone() {
  static const Result run = train<double>(small(), kCurveSteps);
  return run;
}

TEST(Layouts, TheLossFalls) {
  EXPECT_GT(alone().losses.front(), 5);
  EXPECT_LT(alone().losses.back(), 0.8 * alone().losses.front());
}

std::string name(const TrainOptions& o) {
  return fmt::format(
      "dp {} tp {} pp {} order {} {} chunks {} zero {} groups of {}{}{}", o.mesh.data,
      o.mesh.tensor, o.mesh.pipeline, o.mesh.order, o.schedule, o.chunks, o.zero, o.mesh.shard,
      o.sequence_parallel ? " sequence" : "",
      fmt::format("{}{}", o.vocab_parallel ? "" : " replicated", o.seed_style ? " seed" : ""));
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
        if (n / tp % pp == 0) expect_curve(layout(n / tp / pp, tp, pp), kCurveSteps);
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
  o = small();
  o.deterministic = true, o.zero = 2, o.chunks = 2, o.schedule = "interleaved";
  refused(o, "use --untied or --zero 1");
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
