// The operators of the device backend on the fake device: the source of the kernels runs on the
// CPU, with streams that run late and memory that the host may not touch.
#include <gtest/gtest.h>

#include "support/fakes/fake_device.h"
#include "support/train/train_device_cases.h"
#include "topo/base/status.h"
#include "train/device/context.h"

namespace weft::train {
namespace {

class DeviceOperators : public ::testing::Test {
 protected:
  void SetUp() override {
    use_fake_device();
    set_operator_threads(1);
  }
};

TEST_F(DeviceOperators, Fp64) { testing::expect_as_on_the_processor<Fp64>(1e-13); }
TEST_F(DeviceOperators, Fp32) { testing::expect_as_on_the_processor<Fp32>(1e-5); }
// Results are rounded to 8 and 11 bits, also attention weights and score gradients.
TEST_F(DeviceOperators, Bf16) { testing::expect_as_on_the_processor<Bf16>(0x1p-7); }
TEST_F(DeviceOperators, Fp16) { testing::expect_as_on_the_processor<Fp16>(0x1p-10); }
// Tiled online softmax against the formulas in fp64.
TEST_F(DeviceOperators, Attention) {
  testing::expect_attention_on_device<Fp64>(1e-12);
  testing::expect_attention_on_device<Fp32>(1e-5);
  testing::expect_attention_on_device<Bf16>(0x1p-6);
  testing::expect_attention_on_device<Fp16>(0x1p-9);
}
TEST_F(DeviceOperators, ExactSquares) {
  testing::expect_exact_squares<Fp64>();
  testing::expect_exact_squares<Fp32>();
  testing::expect_exact_squares<Bf16>();
  testing::expect_exact_squares<Fp16>();
}
TEST_F(DeviceOperators, FiniteDifferences) { testing::expect_finite_differences(); }

TEST_F(DeviceOperators, AHeadThatNoTeamHoldsIsRefused) {
  using T = OnDevice<Bf16>;
  const AttentionShape s{1, 1, 1, 136};
  Tensor<T> qkv(3 * s.width(), Use::kWorkspace), out(s.width(), Use::kWorkspace);
  Tensor<Wide<T>> log_sum(1, Use::kWorkspace);
  try {
    attention(out.data(), log_sum.data(), qkv.data(), s);
    ADD_FAILURE() << "is taken";
  } catch (const Error& e) {
    EXPECT_STREQ(e.what(),
                 "attention on a GPU: a head of 136 numbers; at most 128: take more --heads");
  }
}

// A team sums in the order of the GPU's butterfly shuffle.
TEST_F(DeviceOperators, TeamsJoinEveryLane) {
  kernels::HostTeam team;
  kernels::HostTeam::PerLane<double> x;
  team.each([&](int lane) { x[lane] = lane + 1; });
  EXPECT_EQ(team.join(x, kernels::Plus()), 32 * 33 / 2);
  team.each([&](int lane) { EXPECT_EQ(x[lane], 32 * 33 / 2); });
  team.each([&](int lane) { x[lane] = lane == 19 ? 7 : -lane; });
  EXPECT_EQ(team.join(x, kernels::Larger()), 7);
}

TEST_F(DeviceOperators, MemoryIsUsedAgain) {
  DeviceContext& context = DeviceContext::of_this_rank();
  const std::size_t used = context.used();
  void* a = context.allocate(1000);
  void* b = context.allocate(3 << 20);
  void* c = context.allocate(0);
  EXPECT_NE(a, b);
  EXPECT_NE(c, nullptr);
  EXPECT_EQ(reinterpret_cast<std::uintptr_t>(b) % 256, 0u);
  EXPECT_GE(context.used() - used, 1000u + (3u << 20));
  const std::size_t reserved = context.reserved();
  context.release(b);
  context.release(a);
  context.release(c);
  EXPECT_EQ(context.used(), used);
  // All memory is one free piece again: the largest possible size fits.
  void* whole = context.allocate(3 << 20);
  EXPECT_EQ(context.reserved(), reserved);
  context.release(whole);
  void* large = context.allocate(std::size_t{100} << 20);  // more than a chunk
  EXPECT_GE(context.reserved(), reserved + (std::size_t{100} << 20));
  context.release(large);
}

TEST_F(DeviceOperators, StreamsAreInOrder) {
  DeviceContext& context = DeviceContext::of_this_rank();
  Tensor<WideOnDevice<float>> from(1000, Use::kWorkspace), to(1000, Use::kWorkspace);
  for (int round = 0; round < 20; ++round) {
    std::vector<float> sent(1000, static_cast<float>(round)), got(1000);
    from_host(from.data(), sent.data(), sent.size());
    sent.assign(1000, -1);  // the upload has copied it
    void* beside = rank_device().communication_after_compute();
    context.device().copy(to.data(), from.data(), to.bytes(), context.gpu(), beside);
    context.device().copy(got.data(), to.data(), to.bytes(), context.gpu(), beside);
    void* event = context.device().make_event(context.gpu());
    context.device().record(event, beside);
    while (!context.device().reached(event)) continue;
    context.device().free_event(event);
    EXPECT_EQ(got, std::vector<float>(1000, static_cast<float>(round)));
  }
}

}  // namespace
}  // namespace weft::train
