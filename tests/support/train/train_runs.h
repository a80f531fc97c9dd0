// Short training runs with ranks as threads, and their results.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <map>
#include <string>
#include <vector>

#include "support/jobs/ranks.h"
#include "train/trainer.h"

namespace weft::train {

struct Result {
  std::vector<double> losses;
  std::map<std::string, std::vector<double>> weights;  // final
};

inline Text text() {
  std::string bytes;
  for (int i = 0; i < 4000; ++i) bytes += static_cast<char>('a' + (i * i / 7 + i % 13) % 26);
  return Text(bytes, "made up");
}

inline TrainOptions small() {
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

inline TrainOptions layout(int dp, int tp, int pp) {
  TrainOptions o = small();
  o.mesh.data = dp;
  o.mesh.tensor = tp;
  o.mesh.pipeline = pp;
  return o;
}

inline TrainOptions layout(const std::array<int, 3>& sizes) {
  return layout(sizes[0], sizes[1], sizes[2]);
}

// A much smaller model with the same number of samples in every step, for loops over many layouts.
// Few micro-batches (two to four per replica, a multiple of its stages if that is at most four):
// the curve does not depend on their number.
inline TrainOptions narrow(const std::array<int, 3>& sizes, Index layers = 4) {
  TrainOptions o = layout(sizes);
  o.model = {.vocabulary = 144, .positions = 8, .width = 24, .heads = 24, .layers = layers};
  const Index samples = o.batch / static_cast<Index>(sizes[0]);
  const Index stages = static_cast<Index>(sizes[2]);
  Index micro_batches = 1;
  for (const Index m : {2, 3, 4})
    if (samples % m == 0 && (m % stages == 0 || stages > 4) && micro_batches == 1)
      micro_batches = m;
  o.micro_batch = samples / micro_batches;
  o.bucket_bytes = 4000;
  return o;
}

// Every data x tensor x pipeline of n ranks.
inline std::vector<std::array<int, 3>> factorisations(int n) {
  std::vector<std::array<int, 3>> all;
  for (int tp = 1; tp <= n; ++tp)
    for (int pp = 1; n % tp == 0 && pp <= n / tp; ++pp)
      if (n / tp % pp == 0) all.push_back({n / tp / pp, tp, pp});
  return all;
}

// Distance of the losses of two runs, relative to the first run's.
inline double loss_distance(const std::vector<double>& a, const std::vector<double>& b) {
  if (a.size() != b.size()) return INFINITY;
  double worst = 0;
  for (std::size_t i = 0; i < a.size(); ++i)
    worst = std::max(worst, std::abs(a[i] - b[i]) / std::abs(a[i]));
  return worst;
}

using NamedValues = std::map<std::string, std::vector<double>>;

// Difference of values, relative to the largest of each tensor. Infinite if the tensors differ in
// name or size.
inline double distance(const NamedValues& a, const NamedValues& b) {
  if (a.size() != b.size()) return INFINITY;
  double worst = 0;
  for (const auto& [name, values] : a) {
    const auto other = b.find(name);
    if (other == b.end() || other->second.size() != values.size()) return INFINITY;
    double largest = 0, apart = 0;
    for (std::size_t i = 0; i < values.size(); ++i) {
      largest = std::max(largest, std::abs(values[i]));
      apart = std::max(apart, std::abs(values[i] - other->second[i]));
    }
    if (apart > 0) worst = std::max(worst, apart / largest);
  }
  return worst;
}

}  // namespace weft::train
