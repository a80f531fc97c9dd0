// The cost model of `auto` includes every cost of the simulator, at about the same size.
// labels: sim
#include <gtest/gtest.h>

#include <string>
#include <utility>
#include <vector>

#include "coll/schedules.h"
#include "coll/select/cost.h"
#include "coll/sim/simulate.h"

namespace weft {
namespace {

constexpr std::size_t kBytes = 4 << 20;

struct Times {
  double simulated, predicted;
};

Times times_of(Collective c, const char* name, const Shape& shape, const SimFabricOptions& o) {
  const Algorithm& a = *find_algorithm(c, name);
  const std::size_t unit = by_blocks(c) ? static_cast<std::size_t>(shape.nranks) : 1;
  return {simulate(a, shape, kBytes / 4 / unit, DType::kFloat32, o).time_us,
          predict(a, shape, kBytes, 4, model_of(o)).time_us};
}

// Each cost alone, so large that it dominates: both include it, and agree within a fifth.
TEST(Charges, TheModelKnowsEachCostOfTheSimulator) {
  const Shape shape = testing::uniform(4, 2);
  SimFabricOptions cheap = fabric_of(shape);
  cheap.rail = cheap.spine = {1, 4000};
  cheap.host = {.1, 4000};
  cheap.complete_us = cheap.post_us = .01;
  cheap.carry_data = false;
  cheap.rail_copies = false;
  std::vector<std::pair<std::string, SimFabricOptions>> all;
  const auto costly = [&](const char* what) -> SimFabricOptions& {
    return all.emplace_back(what, cheap).second;
  };
  costly("a rail's latency").rail.latency_us = 200;
  costly("a rail's rate").rail.gbps = 20;
  costly("a rail's headers").payload_share = .01;
  costly("a host's latency").host.latency_us = 100;
  costly("a host's rate").host.gbps = 20;
  SimFabricOptions& messages = costly("messages");
  messages.post_us = messages.complete_us = 20;
  costly("reductions").reduce_us_per_byte = 2e-3;
  costly("copies inside a host").copy_us_per_byte = 2e-3;
  SimFabricOptions& copies = costly("copies of what rails bring");
  copies.copy_us_per_byte = 2e-3;
  copies.rail_copies = true;
  SimFabricOptions& shared = costly("a rail that two ranks share");
  shared.rail_of_rank.assign(8, 0);
  shared.rail.gbps = 20;
  for (const auto& [collective, name] : {std::pair{Collective::kAllReduce, "hierarchical"},
                                         {Collective::kAllReduce, "hierarchical_hd"},
                                         {Collective::kAllGather, "hierarchical"},
                                         {Collective::kReduceScatter, "hierarchical"},
                                         {Collective::kAllGather, "hierarchical_hd"},
                                         {Collective::kAllToAll, "pairwise"}}) {
    const Times base = times_of(collective, name, shape, cheap);
    for (const auto& [what, options] : all) {
      const Times t = times_of(collective, name, shape, options);
      const std::string which = std::string(weft::name(collective)) + " " + name + ", " + what;
      // Nothing is reduced in an all_gather.
      if (t.simulated > 3 * base.simulated) {
        EXPECT_GT(t.predicted, 3 * base.predicted) << which;
      }
      EXPECT_NEAR(t.predicted / t.simulated, 1, .2) << which;
    }
  }
}

// For many ranks, the model evaluates a first and a last rank and assumes that other ranks'
// messages arrive at the same times, also if these two are neighbors in a ring.
TEST(Charges, FewPlayedRanksTellTheTimeOfAll) {
  const auto ratio = [](Collective c, const char* name, const Shape& shape, std::size_t bytes) {
    SimFabricOptions o = fabric_of(shape);
    o.rail = {5, 400};
    o.spine = {8, 400};
    o.host = {1, 3600};
    o.post_us = o.complete_us = .3;
    o.carry_data = false;
    const Algorithm& a = *find_algorithm(c, name);
    const std::size_t count = bytes / 4 / static_cast<std::size_t>(shape.nranks);
    return predict(a, shape, bytes, 4, model_of(o)).time_us /
           simulate(a, shape, count, DType::kFloat32, o).time_us;
  };
  EXPECT_NEAR(ratio(Collective::kAllGather, "hierarchical", testing::uniform(32, 8), 64 << 20), 1,
              .2);
  EXPECT_NEAR(ratio(Collective::kAllToAll, "bruck", testing::uniform(128, 1), 64 << 10), 1, .2);
}

}  // namespace
}  // namespace weft
