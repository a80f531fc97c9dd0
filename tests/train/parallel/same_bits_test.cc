// The deterministic mode: the same bits for every number of replicas, ZeRO stage and algorithm.
// labels: sim
#include <fmt/format.h>
#include <gtest/gtest.h>

#include "support/train/train_runs.h"

namespace weft::train {
namespace {

constexpr int kBitSteps = 6;

TrainOptions deterministic(int dp, int zero, const std::string& algorithm = "auto") {
  TrainOptions o = small();
  o.model.layers = 4;
  o.deterministic = true;
  o.mesh.data = dp;
  o.mesh.algorithm = algorithm;
  o.zero = zero;
  return o;
}
Result run(const TrainOptions& o, const std::vector<int>& hosts = {}) {
  WorldOptions options;
  options.deterministic = true;
  return train<float>(o, kBitSteps, options, hosts);
}
const Result& one_replica() {
  static const Result one = run(deterministic(1, 0));
  return one;
}
void expect_same_bits(const Result& r, const std::string& what) {
  EXPECT_EQ(one_replica().losses, r.losses) << what;
  EXPECT_EQ(one_replica().weights, r.weights) << what;
}

TEST(Deterministic, EveryNumberOfReplicasAndZeroStage) {
  for (int zero = 0; zero <= 3; ++zero)
    for (const int dp : {1, 2, 4, 8})
      expect_same_bits(run(deterministic(dp, zero)), fmt::format("dp {} ZeRO {}", dp, zero));
}

TEST(Deterministic, EveryAlgorithmAndTwoHosts) {
  int turn = 0;
  for (const char* algorithm :
       {"direct", "flat", "ring", "tree", "halving_doubling", "recursive_doubling", "hierarchical",
        "hierarchical_hd", "hierarchical_rd", "hierarchical_leader"})
    for (int i = 0; i < 2; ++i, ++turn) {  // with stage 0, and another stage in turn
      const int zero = i == 0 ? 0 : 1 + turn / 2 % 3;
      const bool hosts = std::string_view(algorithm).starts_with("hierarchical");
      const std::vector<int> where = hosts ? std::vector<int>{2, 2} : std::vector<int>{4};
      expect_same_bits(run(deterministic(4, zero, algorithm), where),
                       fmt::format("{} ZeRO {}", algorithm, zero));
    }
  for (const int dp : {2, 4, 8}) {
    const TrainOptions o = deterministic(dp, dp == 8 ? 3 : 0);
    expect_same_bits(run(o, {dp / 2, dp / 2}), fmt::format("dp {} on two hosts", dp));
  }
}

TEST(Deterministic, WithoutOverlap) {
  for (const int zero : {0, 2, 3})
    for (const int dp : {1, 4}) {
      TrainOptions o = deterministic(dp, zero);
      o.overlap = false;
      expect_same_bits(run(o), fmt::format("dp {} ZeRO {} without overlap", dp, zero));
    }
}

// Gradients summed over tensor-parallel ranks are part of each micro-batch's gradient.
TEST(Deterministic, SequenceParallelInEveryZeroStage) {
  const auto of = [](int dp, int zero) {
    TrainOptions o = deterministic(dp, zero);
    o.mesh.tensor = 2;
    o.sequence_parallel = true;
    return run(o);
  };
  const Result one = of(1, 0);
  for (int zero = 0; zero <= 3; ++zero)
    for (const int dp : {2, 4}) {
      const Result r = of(dp, zero);
      EXPECT_EQ(one.losses, r.losses) << "dp " << dp << " ZeRO " << zero;
      EXPECT_EQ(one.weights, r.weights) << "dp " << dp << " ZeRO " << zero;
    }
}

// Also if B and W are separate, with another micro-batch in between.
TEST(Deterministic, SchedulesThatReorder) {
  for (const std::string schedule : {"interleaved", "zero-bubble"})
    for (const bool tied : {true, false}) {
      const auto of = [&](int dp, int zero) {
        TrainOptions o = deterministic(dp, zero);
        o.mesh.pipeline = 2;
        o.schedule = schedule;
        o.chunks = schedule == "interleaved" ? 2 : 1;
        o.model.tied = tied;
        return run(o);
      };
      const Result one = of(1, 0);
      for (const int dp : {2, 4})
        for (const int zero : {0, tied ? 1 : 2}) {
          const Result r = of(dp, zero);
          EXPECT_EQ(one.losses, r.losses) << schedule << " dp " << dp << " ZeRO " << zero;
          EXPECT_EQ(one.weights, r.weights) << schedule << " dp " << dp << " ZeRO " << zero;
        }
    }
}

// Without the mode bits do differ, so the tests above can fail.
TEST(Deterministic, OnlyInThatMode) {
  TrainOptions o = deterministic(8, 0, "ring");
  o.deterministic = false;
  EXPECT_NE(one_replica().weights, train<float>(o, kBitSteps).weights);
}

}  // namespace
}  // namespace weft::train
