// The cost of a choice: the number of schedules that it builds.
#include <gtest/gtest.h>

#include "coll/schedule/building_blocks.h"
#include "coll/schedules.h"
#include "coll/select/cost.h"

namespace weft {
namespace {

// A choice for 1,024 ranks does not build all their schedules, since building and evaluating them
// takes the time.
TEST(PickCost, BuildsTheSchedulesOfFewRanks) {
  const Shape shape = testing::uniform(128, 8);
  CostModel model;
  model.host_ports = true;
  constexpr std::size_t kLong = 16 << 20;
  for (const Collective c : {Collective::kAllReduce, Collective::kAllGather,
                             Collective::kReduceScatter, Collective::kAllToAll})
    for (const std::size_t bytes : {std::size_t{64} << 10, kLong}) {
      std::uint64_t algorithms_here = 0;
      for (const Algorithm& a : algorithms()) algorithms_here += a.collective == c;
      const std::uint64_t before = schedules_built();
      ASSERT_NE(pick(c, shape, bytes, model).algorithm, nullptr);
      EXPECT_LE(schedules_built() - before, bytes < kLong ? 256 : 7 * algorithms_here)
          << name(c) << ", " << bytes;
    }
  // A tree's ranks have different roles and few steps: all are played, once for each algorithm
  // whose ranks have few steps together.
  const std::uint64_t before = schedules_built();
  ASSERT_NE(pick(Collective::kBroadcast, shape, 16 << 20, model).algorithm, nullptr);
  EXPECT_LE(schedules_built() - before, 4096u);
}

}  // namespace
}  // namespace weft
