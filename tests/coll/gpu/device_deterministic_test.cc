// set_deterministic() also holds for staged device memory: sums in rank order with every algorithm.
// (The direct path always sums in rank order.)
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <vector>

#include "support/device/device_ranks.h"
#include "support/jobs/ranks.h"

namespace weft {
namespace {

using DeviceDeterministic = testing::OnFakeDevice;

constexpr std::size_t kCount = 3001;

// Numbers of very different magnitude: any other order of additions changes the bits.
float number(int rank, std::size_t i) {
  const auto dice = static_cast<unsigned>(i * 7919 + static_cast<std::size_t>(rank) * 104729);
  return std::ldexp(static_cast<float>(dice % 2003) / 1000 - 1, static_cast<int>(dice % 23) - 11);
}

TEST_F(DeviceDeterministic, StagedSumsAreInTheOrderOfRanks) {
  fake_->separate(true);
  testing::run_ranks(testing::places({4}), testing::patient(), [](World& world) {
    testing::TestStream work(*device(), world.rank() % FakeDevice::kGpus);
    Communicator comm = world.world();
    comm.set_algorithm(Collective::kAllReduce, "ring");
    std::vector<float> want(kCount);
    std::vector<std::byte> mine(kCount * sizeof(float));
    for (std::size_t i = 0; i < kCount; ++i) {
      const float x = number(comm.rank(), i);
      std::memcpy(mine.data() + i * sizeof x, &x, sizeof x);
      for (int r = 0; r < comm.size(); ++r)
        want[i] = r == 0 ? number(0, i) : want[i] + number(r, i);
    }
    testing::DeviceBuffer in(work, mine.size()), out(work, mine.size());
    in.put(mine);
    const auto differ = [&](bool ordered) {
      (ordered ? comm.on(work.get()) : comm)
          .all_reduce(in.data(), out.data(), kCount, DType::kFloat32, RedOp::kSum)
          .check();
      const auto got = out.get();
      return std::memcmp(got.data(), want.data(), got.size()) != 0;
    };
    EXPECT_TRUE(differ(true));  // otherwise the checks below prove nothing
    comm.set_deterministic(true);
    EXPECT_FALSE(differ(true));
    EXPECT_FALSE(differ(false));
    comm.set_deterministic(false);
    EXPECT_TRUE(differ(false));
    EXPECT_EQ(comm.last_algorithm(), "ring");
  });
}

}  // namespace
}  // namespace weft
