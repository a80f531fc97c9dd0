// Training on a device, with ranks sharing one GPU: the same loss curves as on the CPU.
#pragma once

#include <gtest/gtest.h>

#include <cmath>

#include "support/train/train_runs.h"

namespace weft::testing {

using train::Bf16;
using train::Fp16;
using train::Fp32;
using train::Fp64;
using train::OnDevice;
using train::TrainOptions;

inline TrainOptions tiny(int dp, int tp, int pp) {
  TrainOptions o = train::layout(dp, tp, pp);
  o.model = {.vocabulary = 264, .positions = 8, .width = 16, .heads = 4, .layers = 4};
  o.batch = 8;
  o.bucket_bytes = 4000;
  return o;
}
inline WorldOptions patient() {
  WorldOptions options;
  options.timeout = std::chrono::milliseconds(120000);
  return options;
}

// Distance of the weights of two runs, relative to their size (2-norms over all tensors).
inline double weight_distance(const train::Result& a, const train::Result& b) {
  double size = 0, apart = 0;
  for (const auto& [name, values] : a.weights) {
    const auto& others = b.weights.at(name);
    EXPECT_EQ(values.size(), others.size()) << name;
    for (std::size_t i = 0; i < values.size(); ++i) {
      size += values[i] * values[i];
      apart += (values[i] - others.at(i)) * (values[i] - others.at(i));
    }
  }
  return std::sqrt(apart / size);
}

inline void expect_curve(const train::Result& want, const train::Result& got, double tolerance,
                         double weight_tolerance, const std::string& what) {
  ASSERT_EQ(want.losses.size(), got.losses.size()) << what;
  for (std::size_t i = 0; i < want.losses.size(); ++i)
    EXPECT_NEAR(got.losses[i], want.losses[i], tolerance * std::abs(want.losses[i]))
        << what << ", step " << i + 1;
  ASSERT_EQ(want.weights.size(), got.weights.size()) << what;
  EXPECT_LE(weight_distance(want, got), weight_tolerance) << what;
}

inline constexpr int kCurve = 5;  // steps

// fp64 training on the device equals fp64 on the CPU in every layout.
inline void expect_layout(const TrainOptions& o, const std::string& what) {
  TrainOptions alone = tiny(1, 1, 1);
  alone.model = o.model;
  const auto want = train::train<double>(alone, kCurve);
  expect_curve(want, train::train<OnDevice<Fp64>>(o, kCurve, patient()), 1e-10, 1e-8, what);
}

// 16-bit training follows fp32 approximately; the weights are rounded masters.
template <class E>
void expect_half(const TrainOptions& o, double tolerance) {
  const auto want = train::train<float>(tiny(1, 1, 1), 20);
  const auto one_less = train::train<float>(tiny(1, 1, 1), 19);
  const auto got = train::train<OnDevice<E>>(o, 20, patient());
  expect_curve(want, got, tolerance, 1, name(E::kType));
  EXPECT_LT(weight_distance(want, got), weight_distance(one_less, got));  // the last update too
  EXPECT_LT(got.losses.back(), 0.9 * got.losses.front());
}

// A restored run continues like an uninterrupted one, in another layout too.
template <class E>
void expect_pieces_go_on(double tolerance, const std::string& offload = "") {
  train::set_operator_threads(1);
  const train::Text data = train::text();
  TrainOptions o = tiny(1, 1, 1);
  o.offload = offload;
  run_ranks(places({1}), patient(), [&](World& world) {
    using T = OnDevice<E>;
    train::Trainer<T> one(world, o, data);
    for (int i = 0; i < 3; ++i) one.step();
    const auto saved = one.pieces();
    train::Trainer<T> other(world, o, data);
    const auto to = other.pieces();
    ASSERT_EQ(saved.size(), to.size());
    for (std::size_t i = 0; i < to.size(); ++i) {
      ASSERT_EQ(saved[i].logical.name, to[i].logical.name);
      std::copy_n(saved[i].data, saved[i].count, to[i].data);
    }
    other.set_steps_done(3);
    other.restored();
    for (int i = 0; i < 2; ++i) {
      const double loss = one.step().loss;
      EXPECT_NEAR(other.step().loss, loss, tolerance * loss);
    }
  });
}

// Bit-identical losses with activations and state offloaded; the device holds no state, and at most
// the share `most` of the activations.
template <class E>
void expect_offloaded(TrainOptions o, const std::string& where, double most) {
  struct Run {
    std::vector<double> losses;
    std::size_t activations = 0, state = 0;
    std::uint64_t moved = 0;
  };
  train::set_operator_threads(1);
  const train::Text data = train::text();
  const auto train = [&](const std::string& offload) {
    o.offload = offload;
    Run run;
    run_ranks(places({o.mesh.ranks()}), patient(), [&](World& world) {
      train::Trainer<OnDevice<E>> trainer(world, o, data);
      for (int i = 0; i < 2; ++i) {
        const train::StepReport r = trainer.step();
        if (world.rank() != 0) continue;
        run.losses.push_back(r.loss);
        run.moved = r.offloaded;
      }
      if (world.rank() != 0) return;
      const auto& ledger = train::MemoryLedger::of_this_rank();
      run.activations = ledger.peak[static_cast<std::size_t>(train::Use::kActivations)];
      run.state = ledger.now[static_cast<std::size_t>(train::Use::kFirstMoment)] +
                  ledger.now[static_cast<std::size_t>(train::Use::kMasterWeights)];
    });
    return run;
  };
  const Run here = train(""), away = train(where);
  EXPECT_EQ(here.losses, away.losses);
  EXPECT_EQ(here.moved, 0u);
  EXPECT_GT(away.moved, 0u);
  EXPECT_GT(here.state, 0u);
  EXPECT_EQ(away.state, 0u);
  EXPECT_LE(static_cast<double>(away.activations), most * static_cast<double>(here.activations));
}

// Bit-identical losses and weights in the deterministic mode.
template <class E>
train::Result train_deterministic(TrainOptions o, const std::vector<int>& hosts = {}) {
  o.deterministic = true;
  WorldOptions options = patient();
  options.deterministic = true;
  return train::train<OnDevice<E>>(o, 3, options, hosts);
}
inline void expect_same_bits(const train::Result& want, const train::Result& got,
                             const std::string& what) {
  EXPECT_EQ(want.losses, got.losses) << what;
  EXPECT_EQ(want.weights, got.weights) << what;
}

// A loss scale that overflows fp16: steps are skipped and the scale halves until it fits.
inline void expect_overflow_is_skipped() {
  train::set_operator_threads(1);
  TrainOptions o = tiny(2, 1, 1);
  o.loss_scale = 0x1p40;
  const train::Text data = train::text();
  run_ranks(places({2}), patient(), [&](World& world) {
    train::Trainer<OnDevice<Fp16>> trainer(world, o, data);
    const double first = trainer.step().loss;
    int skipped = 1;
    for (train::StepReport r = trainer.step(); r.skipped; r = trainer.step()) {
      EXPECT_EQ(r.loss > 0, true);
      ASSERT_LT(++skipped, 40);
    }
    EXPECT_GT(skipped, 1);
    double last = first;
    for (int i = 0; i < 10; ++i) last = trainer.step().loss;
    EXPECT_LT(last, first);
  });
}

}  // namespace weft::testing
