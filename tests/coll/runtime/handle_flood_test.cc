// labels: multiproc
// ctest: whole
// Hundreds of pending asynchronous operations.
#include <gtest/gtest.h>
#include <malloc.h>

#include <chrono>
#include <cstdint>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "support/jobs/ranks.h"
#include "support/jobs/setting.h"

namespace weft {
namespace {

using testing::places;
using testing::run_ranks;
using testing::Setting;

class Flood : public ::testing::TestWithParam<Setting> {};

// Pending operations must not hold resources that earlier operations need: cells, slots, views.
TEST_P(Flood, HundredsInFlightOnOneCommunicator) {
  WorldOptions options;
  options.transport = GetParam().transport;
  options.timeout = std::chrono::milliseconds(20000);
  run_ranks(places(GetParam().hosts), options, [](World& world) {
    Communicator comm = world.world();
    const auto n = static_cast<std::size_t>(comm.size());
    std::mt19937 random(17);  // the same sizes on every rank
    for (int turn = 0; turn < 3; ++turn) {
      constexpr std::size_t kCalls = 400;
      std::vector<std::vector<std::int32_t>> in(kCalls), out(kCalls);
      std::vector<Request> handles;
      for (std::size_t i = 0; i < kCalls; ++i) {
        const std::size_t most = i % 16 == 0 ? 200000 : i % 3 == 0 ? 20000 : 1500;
        const std::size_t count = 1 + random() % most;
        const bool scatter = i % 2 == 1;
        in[i].assign(scatter ? count * n : count, comm.rank() + static_cast<std::int32_t>(i));
        out[i].assign(count, -1);
        handles.push_back(scatter ? comm.reduce_scatter_async(in[i].data(), out[i].data(), count,
                                                              DType::kInt32, RedOp::kSum)
                                  : comm.all_reduce_async(in[i].data(), out[i].data(), count,
                                                          DType::kInt32, RedOp::kSum));
        // Delays each rank at different calls, so that ranks run ahead of each other.
        if (i % 50 == static_cast<std::size_t>(comm.rank()) * 7 % 50)
          std::this_thread::sleep_for(std::chrono::milliseconds(2));
      }
      for (std::size_t i = 0; i < kCalls; ++i) {
        const Status s = handles[i].wait();
        ASSERT_TRUE(s.ok()) << s.to_string();
        const auto want = static_cast<std::int32_t>(n * (n - 1) / 2 + n * i);
        for (const std::int32_t x : out[i]) ASSERT_EQ(x, want) << "call " << i;
      }
    }
  });
}

INSTANTIATE_TEST_SUITE_P(Over, Flood,
                         ::testing::Values(Setting{"shm4", {4}, "auto"},
                                           Setting{"shm8", {8}, "auto"},
                                           Setting{"mixed4x2", {4, 4}, "auto"}),
                         [](const auto& info) { return std::string(info.param.name); });

// Each concurrent call allocates memory for its plan; afterwards weft keeps only a few of these.
TEST(FloodMemory, OfABurstIsGivenBack) {
  WorldOptions options;
  options.transport = "tcp";
  options.timeout = std::chrono::milliseconds(60000);
  run_ranks(places({1, 1, 1, 1, 1, 1, 1, 1}), options, [](World& world) {
    Communicator comm = world.world();
    const auto n = static_cast<std::size_t>(comm.size());
    constexpr std::size_t kBlock = 4;
    const auto burst = [&](std::size_t calls) {
      std::vector<std::int32_t> in(calls * n * kBlock, 1), out(calls * n * kBlock);
      std::vector<Request> handles;
      for (std::size_t i = 0; i < calls; ++i)
        handles.push_back(comm.all_to_all_async(&in[i * n * kBlock], &out[i * n * kBlock], kBlock,
                                                DType::kInt32));
      for (Request& handle : handles) ASSERT_TRUE(handle.wait().ok());
    };
    const auto in_use = [&] {
      EXPECT_TRUE(comm.barrier().ok());
      const struct mallinfo2 heap = mallinfo2();
      EXPECT_TRUE(comm.barrier().ok());
      return heap.uordblks + heap.hblkhd;
    };
    burst(20);
    const std::size_t before = in_use();
    burst(1000);
    EXPECT_LE(in_use(), before + (std::size_t{16} << 20));
  });
}

}  // namespace
}  // namespace weft
