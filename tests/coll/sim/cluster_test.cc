// The engine at the size of a cluster, in virtual time: rails of 400 Gb/s and 5 us, links inside a
// host of 3600 Gb/s and 1 us, .3 us of a core for each end of a message.
// labels: sim
#include <gtest/gtest.h>

#include <algorithm>
#include <string>

#include "coll/schedules.h"
#include "coll/select/cost.h"
#include "coll/sim/simulate.h"

namespace weft {
namespace {

using testing::full_name;
using testing::is_vector;
using testing::uniform;

constexpr std::size_t kMiB = 1 << 20;

SimFabricOptions cluster(const Shape& shape) {
  SimFabricOptions options = fabric_of(shape);
  options.rail = {5, 400};
  options.spine = {8, 400};
  options.host = {1, 3600};
  options.post_us = options.complete_us = 0.3;
  options.carry_data = false;
  return options;
}

SimResult run(const Algorithm& algorithm, const Shape& shape, std::size_t bytes) {
  const std::size_t unit =
      by_blocks(algorithm.collective) ? static_cast<std::size_t>(shape.nranks) : 1;
  return simulate(algorithm, shape, bytes / 4 / unit, DType::kFloat32, cluster(shape));
}

double of_bound(Collective collective, const char* name, const Shape& shape, std::size_t bytes) {
  const SimResult r = run(*find_algorithm(collective, name), shape, bytes);
  EXPECT_LE(r.scratch_bytes, kScratchMax) << name;
  return lower_bound_us(collective, shape, bytes, model_of(cluster(shape))) / r.time_us;
}

// The stages of the hierarchy overlap, and enough is in flight for the latency of a rail.
TEST(Cluster, RailsAreKeptBusy) {
  const auto all_reduce = [](const char* name, int hosts, std::size_t bytes) {
    return of_bound(Collective::kAllReduce, name, uniform(hosts, 8), bytes);
  };
  EXPECT_GE(all_reduce("hierarchical_hd4", 4, 64 * kMiB), .90);
  EXPECT_GE(all_reduce("hierarchical_hd", 4, 64 * kMiB), .86);
  EXPECT_GE(all_reduce("hierarchical", 4, 64 * kMiB), .83);
  EXPECT_GE(all_reduce("hierarchical_hd4", 12, 64 * kMiB), .90);  // a count that is no power of two
  EXPECT_GE(all_reduce("hierarchical_hd", 12, 64 * kMiB), .88);
  EXPECT_GE(all_reduce("hierarchical_hd4", 32, 16 * kMiB), .70);
  EXPECT_GE(all_reduce("hierarchical_hd4", 4, 1024 * kMiB), .96);
  EXPECT_GE(of_bound(Collective::kAllReduce, "halving_doubling", uniform(32, 1), 256 * kMiB), .96);
}

TEST(Cluster, ScratchIsBoundedOnEveryRank) {
  for (const Shape& shape : {uniform(4, 8), uniform(13, 1), uniform(6, 2), is_vector({3, 1, 4})})
    for (const Algorithm& a : algorithms()) {
      if (!a.applies(shape) || a.collective == Collective::kBarrier) continue;
      for (const std::size_t bytes : {kMiB, 16 * kMiB})
        EXPECT_LE(run(a, shape, bytes).scratch_bytes, kScratchMax)
            << full_name(a) << ", " << shape.nranks << " ranks, " << bytes << " bytes";
    }
}

}  // namespace
}  // namespace weft
