// The deterministic mode on a device: the same bits for every number of replicas, ZeRO stage and
// way between ranks (their memory, or staged between hosts).
// labels: sim
#include <fmt/format.h>
#include <gtest/gtest.h>

#include "support/train_on_device_cases.h"
#include "transport/device_fake.h"

namespace weft::train {
namespace {

class DeviceSameBits : public ::testing::Test {
 protected:
  void SetUp() override { use_fake_device(); }
};

template <class E>
void expect_every_number_of_replicas(const std::vector<int>& stages) {
  const Result alone = testing::train_deterministic<E>(testing::tiny(1, 1, 1));
  const std::string type = name(E::kType);
  for (const int zero : stages)
    for (const int dp : {1, 2, 4, 8}) {
      TrainOptions o = testing::tiny(dp, 1, 1);
      o.zero = zero;
      testing::expect_same_bits(alone, testing::train_deterministic<E>(o),
                                fmt::format("{} dp {} ZeRO {}", type, dp, zero));
    }
  for (const int zero : {0, 3}) {  // staged: through the collectives of the host
    TrainOptions o = testing::tiny(4, 1, 1);
    o.zero = zero;
    testing::expect_same_bits(alone, testing::train_deterministic<E>(o, {2, 2}),
                              fmt::format("{} ZeRO {} on two hosts", type, zero));
  }
}
TEST_F(DeviceSameBits, Fp32) { expect_every_number_of_replicas<Fp32>({0, 3}); }
TEST_F(DeviceSameBits, Bf16) { expect_every_number_of_replicas<Bf16>({0, 1, 2, 3}); }

// Beside the other axes; the bits are those of one tensor and pipeline layout.
TEST_F(DeviceSameBits, BesideTensorAndPipelineParallel) {
  const Result one = testing::train_deterministic<Bf16>(testing::tiny(1, 2, 2));
  TrainOptions o = testing::tiny(2, 2, 2);
  testing::expect_same_bits(one, testing::train_deterministic<Bf16>(o), "dp 2 tp 2 pp 2");
  o.zero = 1;
  testing::expect_same_bits(one, testing::train_deterministic<Bf16>(o), "dp 2 tp 2 pp 2 ZeRO 1");
}
TEST_F(DeviceSameBits, Fp16WithLossScaling) {
  TrainOptions o = testing::tiny(1, 1, 1);
  o.loss_scale = 0x1p20;  // too large at first: steps are skipped alike
  const Result one = testing::train_deterministic<Fp16>(o);
  o.mesh.data = 2;
  o.zero = 2;
  testing::expect_same_bits(one, testing::train_deterministic<Fp16>(o), "fp16 dp 2 ZeRO 2");
}

// The curve is the processor's.
TEST_F(DeviceSameBits, TheProcessorsCurve) {
  TrainOptions o = testing::tiny(2, 2, 2);
  o.deterministic = true;
  testing::expect_layout(o, "deterministic, dp 2 tp 2 pp 2");
  o = testing::tiny(4, 1, 1);
  o.deterministic = true;
  o.zero = 3;
  testing::expect_layout(o, "deterministic, dp 4 ZeRO 3");
}

// Without the mode bits do differ: the tests above can fail.
TEST_F(DeviceSameBits, OnlyInThatMode) {
  const Result alone = testing::train_deterministic<Bf16>(testing::tiny(1, 1, 1));
  const Result two = train<OnDevice<Bf16>>(testing::tiny(2, 1, 1), 3, testing::patient());
  EXPECT_NE(alone.weights, two.weights);
}

}  // namespace
}  // namespace weft::train
