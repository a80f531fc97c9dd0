// labels: cuda
// The device interface and the kernels on a real GPU.
#include <gtest/gtest.h>

#include "support/device/device_cases.h"
#include "support/device/device_kernel_cases.h"

namespace weft {
namespace {

class Cuda : public ::testing::Test {
 protected:
  void SetUp() override {
    if (!device()) GTEST_SKIP() << "missing capability: " << missing_device();
  }
};

TEST_F(Cuda, KernelsGiveTheBitsOfTheHostsKernels) {
  testing::TestStream stream(*device());
  testing::run_kernel_cases(stream);
}

TEST_F(Cuda, KernelsDoLongMessages) {
  testing::TestStream stream(*device());
  for (const std::size_t count : {std::size_t{5000003}, std::size_t{16} << 20})
    testing::run_kernel_case(stream, {DType::kFloat32, RedOp::kSum, 4, 4, count});
}

TEST_F(Cuda, DoesWhatTheSeamSays) { testing::run_device_cases(*device()); }

TEST_F(Cuda, NoCallWaitsForAStreamThatWaits) { testing::run_waiting_cases(*device()); }

}  // namespace
}  // namespace weft
