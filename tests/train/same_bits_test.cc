// The deterministic mode: the same bits for every number of replicas, ZeRO stage and algorithm.
// labels: sim
#include <fmt/format.h>
#include <gtest/gtest.h>

#include "support/train_runs.h"

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
  for (const char* algorithm :
       {"direct", "flat", "ring", "tree", "halving_doubling", "recursive_doubling", "hierarchical",
        "hierarchical_hd", "hierarchical_rd", "hierarchical_leader"})
    for (int zero = 0; zero <= 3; ++zero) {
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

// Without the mode bits do differ: the test above can fail.
TEST(Deterministic, OnlyInThatMode) {
  TrainOptions o = deterministic(8, 0, "ring");
  o.deterministic = false;
  EXPECT_NE(one_replica().weights, train<float>(o, kBitSteps).weights);
}

}  // namespace
}  // namespace weft::train
