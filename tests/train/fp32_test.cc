// The loss curve in fp32 under AdamW: the same in every layout within 1e-5 over 50 steps, where the
// curve itself does not enlarge rounding.
// labels: sim
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <array>
#include <cmath>

#include "support/train_runs.h"

namespace weft::train {
namespace {

constexpr int kSteps = 50;
constexpr std::array<std::array<int, 3>, 7> kLayouts{
    {{8, 1, 1}, {1, 8, 1}, {1, 1, 8}, {2, 2, 2}, {1, 4, 2}, {3, 2, 1}, {1, 2, 3}}};

double distance(const std::vector<double>& a, const std::vector<double>& b) {
  double worst = 0;
  for (std::size_t i = 0; i < a.size(); ++i)
    worst = std::max(worst, std::abs(a[i] - b[i]) / std::abs(a[i]));
  return worst;
}

TrainOptions with(const TrainOptions& o, const std::array<int, 3>& sizes) {
  TrainOptions l = o;
  l.mesh.data = sizes[0], l.mesh.tensor = sizes[1], l.mesh.pipeline = sizes[2];
  return l;
}

TEST(Fp32, OneCurveUnderAdamW) {
  TrainOptions o = small();
  o.rate.peak = 1e-3;
  const Result one = train<float>(o, kSteps);
  EXPECT_LT(one.losses.back(), 0.8 * one.losses.front());
  for (const auto& sizes : kLayouts) {
    const double d = distance(one.losses, train<float>(with(o, sizes), kSteps).losses);
    fmt::print("dp {} tp {} pp {}: {:.2g}\n", sizes[0], sizes[1], sizes[2], d);
    EXPECT_LE(d, 1e-5) << sizes[0] << " " << sizes[1] << " " << sizes[2];
  }
  for (int zero = 1; zero <= 3; ++zero) {
    TrainOptions l = with(o, {4, 1, 1});
    l.zero = zero;
    EXPECT_LE(distance(one.losses, train<float>(l, kSteps).losses), 1e-5) << zero;
  }
}

// The losses in fp64 when every initial weight is rounded to fp32 first, once.
std::vector<double> losses_from_rounded_weights(const TrainOptions& o) {
  std::vector<double> losses;
  const Text data = text();
  testing::run_ranks(testing::places({1}), {}, [&](World& world) {
    Trainer<double> trainer(world, o, data);
    for (Piece<double>& p : trainer.pieces())
      for (std::size_t i = 0; i < p.count; ++i) p.data[i] = static_cast<float>(p.data[i]);
    trainer.restored();
    for (int i = 0; i < kSteps; ++i) losses.push_back(trainer.step().loss);
  });
  return losses;
}

// Settings under which fp32 curves part by 1e-2 (rate 3e-3, epsilon 1e-5). It is the curve that
// does it, not a layout: in fp64 one rounding of the weights at the start (6e-8 of each) parts it
// as far, and layouts in fp64 part by as many times their own rounding.
TEST(Fp32, WhatPartsMoreIsTheCurvesOwn) {
  TrainOptions o = small();
  o.optimizer.epsilon = 1e-5;
  const auto exact = train<double>(o, kSteps).losses;
  const double rounded = distance(exact, losses_from_rounded_weights(o));
  fmt::print("weights rounded once: {:.2g}\n", rounded);
  EXPECT_GT(rounded, 1e-4);
  for (const auto& sizes : {kLayouts[1], kLayouts[3]}) {
    const double narrow = distance(exact, train<float>(with(o, sizes), kSteps).losses);
    const double wide = distance(exact, train<double>(with(o, sizes), kSteps).losses);
    fmt::print("dp {} tp {} pp {}: fp32 {:.2g}, fp64 {:.2g}\n", sizes[0], sizes[1], sizes[2],
               narrow, wide);
    EXPECT_LT(wide, 1e-9);
  }
}

// Where the curve is kind, what is left of fp32 is far below 1e-5 at the first rate as well.
TEST(Fp32, ALargerEpsilonIsKinder) {
  TrainOptions o = small();
  o.optimizer.epsilon = 1e-4;
  const Result one = train<float>(o, kSteps);
  for (const auto& sizes : {kLayouts[1], kLayouts[3]})
    EXPECT_LE(distance(one.losses, train<float>(with(o, sizes), kSteps).losses), 1e-5);
}

}  // namespace
}  // namespace weft::train
