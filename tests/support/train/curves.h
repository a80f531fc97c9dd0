// Compares the losses and final weights of a run in any layout with those of one process.
#pragma once

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <map>
#include <string>

#include "support/train/train_runs.h"

namespace weft::train {

// Relative to the largest weight of a tensor. AdamW divides each gradient by its own size, which
// amplifies the rounding of a gradient near zero, so weights differ more than losses (typically
// 1e-11). One missing or misplaced update gives 1e-3.
inline constexpr double kWeightsApart = 1e-8;

inline void expect_same(const Result& one, const Result& other, double tolerance,
                        const std::string& what) {
  const double losses = loss_distance(one.losses, other.losses);
  const double weights = distance(one.weights, other.weights);
  EXPECT_LE(losses, tolerance) << what;
  EXPECT_LE(weights, kWeightsApart) << what;
  fmt::print("{}: losses {:.2g}, weights {:.2g}\n", what, losses, weights);
}

inline constexpr int kCurveSteps = 50, kShortSteps = 10;

inline const Result& alone(int steps = kShortSteps) {
  static std::map<int, Result> runs;
  if (!runs.contains(steps)) runs[steps] = train<double>(small(), steps);
  return runs[steps];
}

inline const Result& narrow_alone(Index layers) {
  static std::map<Index, Result> runs;
  if (!runs.contains(layers)) runs[layers] = train<double>(narrow({1, 1, 1}, layers), kShortSteps);
  return runs[layers];
}

inline std::string name(const TrainOptions& o) {
  return fmt::format("dp {} tp {} pp {} {} chunks {} zero {} groups of {}{}{}", o.mesh.data,
                     o.mesh.tensor, o.mesh.pipeline, o.schedule, o.chunks, o.zero, o.mesh.shard,
                     o.sequence_parallel ? " sequence" : "",
                     fmt::format(" {}{}", o.embed, o.seed_style ? " seed" : ""));
}
inline void expect_curve(const TrainOptions& o, int steps = kShortSteps) {
  expect_same(alone(steps), train<double>(o, steps), 1e-10, name(o));
}

inline void expect_narrow_curve(const TrainOptions& o) {
  expect_same(narrow_alone(o.model.layers), train<double>(o, kShortSteps), 1e-10, name(o));
}

}  // namespace weft::train
