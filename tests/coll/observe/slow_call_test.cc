// labels: multiproc
// ctest: whole
// The log line about a slow call.
#include <gtest/gtest.h>
#include <spdlog/sinks/ostream_sink.h>

#include <chrono>
#include <memory>
#include <sstream>
#include <string>
#include <thread>
#include <vector>

#include "support/jobs/ranks.h"
#include "topo/base/log.h"

namespace weft {
namespace {

// In an all_to_all_v, no rank knows all sizes.
TEST(SlowCall, OfAnAllToAllWithBlocksOfDifferentSizes) {
  const auto lines = std::make_shared<std::ostringstream>();
  log().sinks().push_back(std::make_shared<spdlog::sinks::ostream_sink_mt>(*lines));
  const auto level = log().level();
  log().set_level(spdlog::level::warn);
  WorldOptions options;
  options.transport = "tcp";
  options.counters = true;
  options.slow = std::chrono::milliseconds(50);
  testing::run_ranks(testing::places({2}), options, [](World& world) {
    Communicator comm = world.world();
    const std::vector<std::size_t> counts{3, 3};
    std::vector<std::int32_t> in(6), out(6);
    EXPECT_TRUE(comm.barrier().ok());
    if (comm.rank() == 1) std::this_thread::sleep_for(std::chrono::milliseconds(300));
    EXPECT_TRUE(comm.all_to_all_v(in.data(), counts, out.data(), counts, DType::kInt32).ok());
  });
  log().sinks().pop_back();
  log().set_level(level);
  EXPECT_NE(lines->str().find("rank 0: all_to_all_v of 24 bytes took"), std::string::npos)
      << lines->str();
}

// A call on a board uses no port, so it is never timed, even long after the last timed call.
TEST(SlowCall, IsNotOneOnABoardLongAfterAnother) {
  const auto lines = std::make_shared<std::ostringstream>();
  log().sinks().push_back(std::make_shared<spdlog::sinks::ostream_sink_mt>(*lines));
  const auto level = log().level();
  log().set_level(spdlog::level::warn);
  WorldOptions options;
  options.counters = true;
  options.slow = std::chrono::milliseconds(50);
  testing::run_ranks(testing::places({2}), options, [](World& world) {
    Communicator comm = world.world();
    std::vector<std::int32_t> in(100'000), out(in.size());
    EXPECT_TRUE(comm.all_reduce(in.data(), out.data(), in.size(), DType::kInt32, RedOp::kSum).ok());
    std::this_thread::sleep_for(2 * std::chrono::milliseconds(50));
    EXPECT_TRUE(comm.barrier_async().wait().ok());
    EXPECT_EQ(comm.last_algorithm(), "flat");
  });
  log().sinks().pop_back();
  log().set_level(level);
  EXPECT_EQ(lines->str().find("barrier"), std::string::npos) << lines->str();
}

}  // namespace
}  // namespace weft
