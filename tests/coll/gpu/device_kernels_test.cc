// The GPU's arithmetic, compiled for the CPU.
#include <gtest/gtest.h>

#include "support/device/device_kernel_cases.h"
#include "support/fakes/fake_device.h"

namespace weft {
namespace {

TEST(DeviceKernels, GiveTheBitsOfTheHostsKernels) {
  testing::TestStream stream(*fake_device());
  testing::run_kernel_cases(stream);
}

TEST(DeviceKernels, TakeAsManySourcesAsFit) {
  testing::TestStream stream(*fake_device());
  testing::run_kernel_case(stream,
                           {DType::kFloat32, RedOp::kSum, kDeviceOperands, kDeviceOperands, 300});
  testing::run_kernel_case(stream, {DType::kFloat16, RedOp::kSum, kDeviceOperands, 1, 300});
}

}  // namespace
}  // namespace weft
