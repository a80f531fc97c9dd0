// The deterministic mode on a device: the same bits for every number of replicas, ZeRO stage and
// path between ranks (device memory, or staged between hosts).
// labels: sim
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <map>
#include <string>
#include <vector>

#include "support/fakes/fake_device.h"
#include "support/train/train_on_device_cases.h"

namespace weft::train {
namespace {

class DeviceSameBits : public ::testing::Test {
 protected:
  void SetUp() override { use_fake_device(); }
};

using Stages = std::map<int, std::vector<int>>;  // ZeRO stage -> numbers of replicas

template <class E>
void expect_every_number_of_replicas(const Stages& stages) {
  const Result alone = testing::train_deterministic<E>(testing::tiny(1, 1, 1));
  const std::string type = name(E::kType);
  for (const auto& [zero, replicas] : stages)
    for (const int dp : replicas) {
      TrainOptions o = testing::tiny(dp, 1, 1);
      o.zero = zero;
      testing::expect_same_bits(alone, testing::train_deterministic<E>(o),
                                fmt::format("{} dp {} ZeRO {}", type, dp, zero));
    }
  for (const int zero : {0, 3}) {  // staged: through the host's collectives
    TrainOptions o = testing::tiny(4, 1, 1);
    o.zero = zero;
    testing::expect_same_bits(alone, testing::train_deterministic<E>(o, {2, 2}),
                              fmt::format("{} ZeRO {} on two hosts", type, zero));
  }
}
TEST_F(DeviceSameBits, Fp32) { expect_every_number_of_replicas<Fp32>({{0, {2, 8}}, {3, {1, 4}}}); }
TEST_F(DeviceSameBits, Bf16) {
  expect_every_number_of_replicas<Bf16>({{0, {4}}, {1, {4}}, {2, {1, 2}}, {3, {8}}});
}

// Together with the other axes; the bits equal those of one tensor and pipeline layout.
TEST_F(DeviceSameBits, BesideTensorAndPipelineParallel) {
  const Result one = testing::train_deterministic<Bf16>(testing::tiny(1, 2, 2));
  TrainOptions o = testing::tiny(2, 2, 2);
  testing::expect_same_bits(one, testing::train_deterministic<Bf16>(o), "dp 2 tp 2 pp 2");
  o.zero = 1;
  testing::expect_same_bits(one, testing::train_deterministic<Bf16>(o), "dp 2 tp 2 pp 2 ZeRO 1");
}
TEST_F(DeviceSameBits, Fp16WithLossScaling) {
  TrainOptions o = testing::tiny(1, 1, 1);
  o.loss_scale = 0x1p20;  // too large at first: all layouts skip the same steps
  const Result one = testing::train_deterministic<Fp16>(o);
  o.mesh.data = 2;
  o.zero = 2;
  testing::expect_same_bits(one, testing::train_deterministic<Fp16>(o), "fp16 dp 2 ZeRO 2");
}

// The loss curve equals the CPU's.
TEST_F(DeviceSameBits, TheProcessorsCurve) {
  TrainOptions o = testing::tiny(2, 2, 2);
  o.deterministic = true;
  testing::expect_layout(o, "deterministic, dp 2 tp 2 pp 2");
  o = testing::tiny(4, 1, 1);
  o.deterministic = true;
  o.zero = 3;
  testing::expect_layout(o, "deterministic, dp 4 ZeRO 3");
}

// cuBLASLt chooses an algorithm by the alignment of the operands, which must not depend on the
// number of ranks that shard the state.
TEST_F(DeviceSameBits, EveryParameterBeginsAtABoundary) {
  const GptShape odd{.vocabulary = 7, .positions = 3, .width = 6, .heads = 2, .layers = 2};
  Axis alone;
  for (const std::size_t ranks : {1, 3, 8}) {
    GptStage<OnDevice<Bf16>> stage(odd, {&alone}, {.multiple = ranks});
    EXPECT_EQ(stage.flat_count() % ranks, 0u);
    for (const Unit& unit : stage.units()) {
      EXPECT_EQ(unit.begin * sizeof(OnDevice<Bf16>) % 256, 0u);
      EXPECT_EQ(unit.begin % ranks, 0u);
    }
    for (const auto& p : stage.parameters())
      EXPECT_EQ(p.offset * sizeof(OnDevice<Bf16>) % 256, 0u) << p.logical.name << ", " << ranks;
  }
}

// Without the mode bits do differ, so the tests above can fail. (Sums in fp32 of a few bf16
// gradients are exact.)
TEST_F(DeviceSameBits, OnlyInThatMode) {
  const Result alone = testing::train_deterministic<Fp32>(testing::tiny(1, 1, 1));
  TrainOptions o = testing::tiny(2, 1, 1);
  const Result two = train<OnDevice<Fp32>>(o, 3, testing::patient());
  EXPECT_NE(alone.weights, two.weights);
}

}  // namespace
}  // namespace weft::train
