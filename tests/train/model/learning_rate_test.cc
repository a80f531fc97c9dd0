#include "train/model/learning_rate.h"

#include <gtest/gtest.h>

#include <limits>

namespace weft::train {
namespace {

// ResNet-50 in one hour: 256 GPUs with 32 samples each, five epochs of warm-up.
TEST(LearningRate, LinearScalingRule) {
  EXPECT_DOUBLE_EQ(linear_scaling(8192), 3.2);
  const int epoch = 1281167 / 8192;
  const RateSchedule s{.peak = linear_scaling(8192), .warm_up = 5 * epoch, .start = 0.1};
  EXPECT_NEAR(s.at(1), 0.1 + 3.1 / (5 * epoch), 1e-12);
  EXPECT_DOUBLE_EQ(s.at(5 * epoch), 3.2);
  EXPECT_DOUBLE_EQ(s.at(50 * epoch), 3.2);
  for (int step = 2; step <= 5 * epoch; ++step) EXPECT_GT(s.at(step), s.at(step - 1));
}

TEST(LearningRate, CosineToTheFloor) {
  const RateSchedule s{.peak = 1, .warm_up = 10, .steps = 110, .floor = 0.1};
  EXPECT_DOUBLE_EQ(s.at(5), 0.5);
  EXPECT_NEAR(s.at(60), 0.55, 1e-12);
  EXPECT_DOUBLE_EQ(s.at(110), 0.1);
  EXPECT_DOUBLE_EQ(s.at(500), 0.1);
}

TEST(LossScaler, SkipsAndHalvesThenGrows) {
  LossScaler scaler(1024, 3);
  EXPECT_FALSE(scaler.step(std::numeric_limits<double>::infinity()));
  EXPECT_EQ(scaler.scale(), 512);
  EXPECT_FALSE(scaler.step(std::numeric_limits<double>::quiet_NaN()));
  EXPECT_EQ(scaler.scale(), 256);
  for (int i = 0; i < 3; ++i) EXPECT_TRUE(scaler.step(1));
  EXPECT_EQ(scaler.scale(), 512);
  // Good steps before the halving do not count towards the three for growth.
  for (int i = 0; i < 2; ++i) EXPECT_TRUE(scaler.step(1));
  EXPECT_FALSE(scaler.step(std::numeric_limits<double>::infinity()));
  for (int i = 0; i < 2; ++i) EXPECT_TRUE(scaler.step(1));
  EXPECT_EQ(scaler.scale(), 256);
  EXPECT_TRUE(scaler.step(1));
  EXPECT_EQ(scaler.scale(), 512);
}

}  // namespace
}  // namespace weft::train
