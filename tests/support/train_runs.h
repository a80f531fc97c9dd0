// Short runs of the trainer with ranks as threads, and what came out.
#pragma once

#include <gtest/gtest.h>

#include <map>
#include <string>
#include <vector>

#include "support/ranks.h"
#include "train/trainer.h"

namespace weft::train {

struct Result {
  std::vector<double> losses;
  std::map<std::string, std::vector<double>> weights;
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

}  // namespace weft::train
