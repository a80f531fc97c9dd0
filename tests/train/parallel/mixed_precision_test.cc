// bf16 and fp16 on the CPU: 20 bytes of state per parameter, losses near fp32's in every kind of
// layout, dynamic loss scaling, and checkpoints that resume with any type.
// labels: sim
#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <vector>

#include "support/train/train_runs.h"

namespace weft::train {
namespace {

constexpr int kHalfSteps = 20;
constexpr double kHalfBound = 0.02;  // relative, as in docs/training/what-travels.md

template <class E>
void expect_near_fp32(const TrainOptions& o) {
  set_operator_threads(1);
  TrainOptions alone = narrow({1, 1, 1});
  alone.model = o.model;
  const auto want = train<float>(alone, kHalfSteps);
  const auto got = train<OnProcessor<E>>(o, kHalfSteps);
  double apart = 0;
  for (std::size_t s = 0; s < kHalfSteps; ++s) {
    EXPECT_NEAR(got.losses[s] / want.losses[s], 1, kHalfBound) << "step " << s;
    apart = std::max(apart, std::abs(got.losses[s] - want.losses[s]));
  }
  EXPECT_GT(apart, 1e-6);  // really 16 bits
  EXPECT_LT(got.losses.back(), 0.99 * got.losses.front());
}

TEST(MixedPrecision, LossesAreNearThoseOfFp32) {
  expect_near_fp32<Bf16>(narrow({1, 1, 1}));
  TrainOptions fp16 = narrow({1, 1, 1});
  fp16.loss_scale = 1024;
  expect_near_fp32<Fp16>(fp16);
}

TEST(MixedPrecision, InEveryKindOfLayout) {
  for (const auto& sizes : {std::array{2, 1, 1}, {1, 2, 1}, {1, 1, 2}, {2, 2, 2}})
    for (const int zero : {0, 1, 2, 3}) {
      if (zero > 0 && sizes[0] == 1) continue;
      TrainOptions o = narrow(sizes);
      o.zero = zero;
      SCOPED_TRACE(describe(o));
      expect_near_fp32<Bf16>(o);
    }
  TrainOptions o = narrow({1, 2, 1});
  o.model.heads = 12;  // of width two, which this form splits
  o.seed_style = true;
  expect_near_fp32<Bf16>(o);
}

// Weights 2, gradients 2, gradient sums 4, moments 8, master weights 4.
TEST(MixedPrecision, TwentyBytesPerParameter) {
  set_operator_threads(1);
  const TrainOptions o = narrow({1, 1, 1});
  const Text data = text();
  testing::run_ranks(testing::places({1}), {}, [&](World& world) {
    Trainer<OnProcessor<Bf16>> trainer(world, o, data);
    trainer.step();
    const auto& now = MemoryLedger::of_this_rank().now;
    const auto of = [&](Use use) { return now[static_cast<std::size_t>(use)]; };
    const std::size_t n = parameter_count(o.model);
    EXPECT_EQ(of(Use::kWeights), 2 * n);
    EXPECT_EQ(of(Use::kGradients), 2 * n);
    EXPECT_EQ(of(Use::kRemoteGradients), 4 * n);
    EXPECT_EQ(of(Use::kFirstMoment) + of(Use::kSecondMoment), 8 * n);
    EXPECT_EQ(of(Use::kMasterWeights), 4 * n);
  });
}

// A scale too large for fp16 is halved until the gradients are finite; skipped steps change no
// weights.
TEST(MixedPrecision, OverflowHalvesTheScale) {
  set_operator_threads(1);
  TrainOptions o = narrow({1, 1, 1});
  o.loss_scale = 0x1p60;
  const Text data = text();
  testing::run_ranks(testing::places({1}), {}, [&](World& world) {
    Trainer<OnProcessor<Fp16>> trainer(world, o, data);
    const auto before = trainer.collect();
    StepReport r = trainer.step();
    EXPECT_TRUE(r.skipped);
    EXPECT_EQ(trainer.collect(), before);
    EXPECT_EQ(trainer.scaler().scale(), 0x1p59);
    for (int i = 0; i < 60 && r.skipped; ++i) r = trainer.step();
    EXPECT_FALSE(r.skipped);
    EXPECT_LT(r.loss_scale, 0x1p30);
    EXPECT_NE(trainer.collect(), before);
  });
}

// Master weights are saved: fp32 resumes from them, and they resume from fp32.
TEST(MixedPrecision, PiecesAreThoseOfFp32) {
  set_operator_threads(1);
  const TrainOptions o = narrow({1, 1, 1});
  const Text data = text();
  testing::run_ranks(testing::places({1}), {}, [&](World& world) {
    Trainer<OnProcessor<Bf16>> half(world, o, data);
    for (int i = 0; i < 3; ++i) half.step();
    Trainer<float> whole(world, o, data);
    const auto from = half.pieces(), to = whole.pieces();
    ASSERT_EQ(from.size(), to.size());
    for (std::size_t i = 0; i < to.size(); ++i) {
      ASSERT_EQ(from[i].logical.name, to[i].logical.name);
      std::copy_n(from[i].data, from[i].count, to[i].data);
    }
    whole.set_steps_done(3);
    whole.restored();
    const double loss = half.step().loss;
    EXPECT_NEAR(whole.step().loss / loss, 1, kHalfBound);
  });
}

}  // namespace
}  // namespace weft::train
