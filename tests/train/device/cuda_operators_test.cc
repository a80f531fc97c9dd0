// labels: cuda
// The operators of the device backend on a GPU: the cases of device_operators_test.
#include <gtest/gtest.h>

#include "support/train/train_device_cases.h"

namespace weft::train {
namespace {

class CudaOperators : public ::testing::Test {
 protected:
  void SetUp() override {
    if (!device()) GTEST_SKIP() << "missing capability: " << missing_device();
    set_operator_threads(1);
  }
};

TEST_F(CudaOperators, Fp64) { testing::expect_as_on_the_processor<Fp64>(1e-12); }
TEST_F(CudaOperators, Fp32) { testing::expect_as_on_the_processor<Fp32>(1e-5); }
TEST_F(CudaOperators, Bf16) { testing::expect_as_on_the_processor<Bf16>(0x1p-7); }
TEST_F(CudaOperators, Fp16) { testing::expect_as_on_the_processor<Fp16>(0x1p-10); }
// Tiled online softmax against the formulas in fp64.
TEST_F(CudaOperators, Attention) {
  testing::expect_attention_on_device<Fp64>(1e-12);
  testing::expect_attention_on_device<Fp32>(1e-5);
  testing::expect_attention_on_device<Bf16>(0x1p-6);
  testing::expect_attention_on_device<Fp16>(0x1p-9);
}
TEST_F(CudaOperators, ExactSquares) {
  testing::expect_exact_squares<Fp32>();
  testing::expect_exact_squares<Bf16>();
}
TEST_F(CudaOperators, FiniteDifferences) { testing::expect_finite_differences(); }

}  // namespace
}  // namespace weft::train
