// labels: cuda
// Training on a GPU that all ranks share: the cases of device_training_test.
#include <gtest/gtest.h>

#include "support/train_on_device_cases.h"

namespace weft::train {
namespace {

class CudaTraining : public ::testing::Test {
 protected:
  void SetUp() override {
    if (!device()) GTEST_SKIP() << "missing capability: " << missing_device();
  }
};

TEST_F(CudaTraining, Alone) { testing::expect_layout(testing::tiny(1, 1, 1), "alone"); }
TEST_F(CudaTraining, TwoByTwoByTwo) {
  testing::expect_layout(testing::tiny(2, 2, 2), "dp 2 tp 2 pp 2");
}
TEST_F(CudaTraining, ZeroInAllStages) {
  for (const int zero : {1, 2, 3}) {
    TrainOptions o = testing::tiny(4, 1, 1);
    o.zero = zero;
    testing::expect_layout(o, "zero " + std::to_string(zero));
  }
}
TEST_F(CudaTraining, Bf16FollowsFp32) { testing::expect_half<Bf16>(testing::tiny(2, 2, 2), 0.02); }
TEST_F(CudaTraining, Fp16WithLossScaling) {
  TrainOptions o = testing::tiny(2, 1, 1);
  o.loss_scale = 1024;
  testing::expect_half<Fp16>(o, 0.02);
}
TEST_F(CudaTraining, OverflowIsSkipped) { testing::expect_overflow_is_skipped(); }
TEST_F(CudaTraining, GoesOnFromPieces) { testing::expect_pieces_go_on<Bf16>(1e-12); }

}  // namespace
}  // namespace weft::train
