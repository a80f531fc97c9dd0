// What a choice costs: how many schedules it builds.
#include <gtest/gtest.h>

#include "coll/schedule/building_blocks.h"
#include "coll/schedules.h"
#include "coll/select/cost.h"

namespace weft {
namespace {

// A choice for 1,024 ranks does not build the schedules of all of them.
TEST(PickCost, BuildsTheSchedulesOfFewRanks) {
  const Shape shape = testing::uniform(128, 8);
  CostModel model;
  model.host_ports = true;
  for (const Collective c : {Collective::kAllReduce, Collective::kAllGather,
                             Collective::kReduceScatter, Collective::kBroadcast})
    for (const std::size_t bytes : {std::size_t{64} << 10, std::size_t{64} << 20}) {
      std::uint64_t algorithms_here = 0;
      for (const Algorithm& a : algorithms()) algorithms_here += a.collective == c;
      const std::uint64_t before = schedules_built();
      ASSERT_NE(pick(c, shape, bytes, model).algorithm, nullptr);
      EXPECT_LE((schedules_built() - before) / algorithms_here, 160u) << name(c) << ", " << bytes;
    }
}

}  // namespace
}  // namespace weft
