// The engine at the size of a cluster, in virtual time: rails of 400 Gb/s and 5 us, links inside a
// host of 3600 Gb/s and 1 us, .3 us of a core for each end of a message.
// labels: sim
#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <utility>

#include "coll/schedules.h"
#include "coll/select/cost.h"
#include "coll/select/tuning.h"
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

// The prediction uses the actual rail rates: here each has half its rate.
TEST(Cluster, SlowRailsAreInTheModel) {
  SimFabricOptions slow = cluster(uniform(4, 8));
  const double sound = model_of(slow).rail.us_per_byte;
  slow.rail_scale.assign(8, 0.5);
  EXPECT_NEAR(model_of(slow).rail.us_per_byte, 2 * sound, 1e-12);
}

// The stages of the hierarchy overlap, and enough data is in flight to hide a rail's latency.
TEST(Cluster, RailsAreKeptBusy) {
  const auto all_reduce = [](const char* name, int hosts, std::size_t bytes) {
    return of_bound(Collective::kAllReduce, name, uniform(hosts, 8), bytes);
  };
  EXPECT_GE(all_reduce("hierarchical_hd4", 4, 64 * kMiB), .90);
  EXPECT_GE(all_reduce("hierarchical_hd", 4, 64 * kMiB), .86);
  EXPECT_GE(all_reduce("hierarchical", 4, 64 * kMiB), .82);
  EXPECT_GE(all_reduce("hierarchical_hd4", 12, 64 * kMiB), .89);  // not a power of two
  EXPECT_GE(all_reduce("hierarchical_hd", 12, 64 * kMiB), .88);
  EXPECT_GE(all_reduce("hierarchical_hd4", 32, 16 * kMiB), .70);
  EXPECT_GE(all_reduce("hierarchical_hd4", 4, 1024 * kMiB), .96);
  EXPECT_GE(of_bound(Collective::kAllReduce, "halving_doubling", uniform(32, 1), 256 * kMiB), .96);
}

// Collectives of blocks keep rails busy too: sums share places, and no step waits for a later one.
TEST(Cluster, RailsAreKeptBusyByBlocks) {
  const Shape shape = uniform(8, 8);
  EXPECT_GE(of_bound(Collective::kReduceScatter, "hierarchical", shape, 512 * kMiB), .93);
  EXPECT_GE(of_bound(Collective::kAllGather, "hierarchical", shape, 512 * kMiB), .93);
  EXPECT_GE(of_bound(Collective::kAllToAll, "pairwise", shape, 256 * kMiB), .93);
}

// Hosts of different sizes use only the rails that all of them have.
TEST(Cluster, UnequalHostsKeepTheirRails) {
  Shape shape = is_vector({8, 8, 4, 8});
  shape.rail = cluster(shape).rail_of_rank;
  const CostModel model = model_of(cluster(shape));
  const Algorithm& picked = *pick(Collective::kAllReduce, shape, 256 * kMiB, model).algorithm;
  EXPECT_TRUE(picked.name.starts_with("hierarchical")) << picked.name;
  const SimResult r = run(picked, shape, 256 * kMiB);
  EXPECT_EQ(r.traffic.cross_rail_bytes, 0u);
  // Four rails carry all data.
  EXPECT_LT(r.time_us, 1.15 * 1.5 * 256 * kMiB / 4 * model.rail.us_per_byte);
}

TEST(Cluster, ScratchIsBoundedOnEveryRank) {
  for (const Shape& shape : {uniform(4, 8), uniform(13, 1), uniform(6, 2), is_vector({3, 1, 4})})
    for (const Algorithm& a : algorithms()) {
      if (!a.applies(shape) || a.collective == Collective::kBarrier) continue;
      const bool packs = may_pack_rounds(a.collective, model_of(cluster(shape)));
      for (const std::size_t bytes : {kMiB, 16 * kMiB})
        EXPECT_LE(run(a, shape, bytes).scratch_bytes, packs ? kPackedScratchMax : kScratchMax)
            << full_name(a) << ", " << shape.nranks << " ranks, " << bytes << " bytes";
    }
}

// `auto` and the simulator use the same costs.
TEST(Cluster, AutoIsAsGoodAsTheBestFixedAlgorithm) {
  for (const auto& [hosts, per_host] : {std::pair{2, 1}, {4, 1}, {8, 1}, {2, 8}, {4, 8}, {8, 8}})
    for (const Collective c :
         {Collective::kAllReduce, Collective::kAllGather, Collective::kReduceScatter,
          Collective::kBroadcast, Collective::kAllToAll})
      for (const std::size_t bytes : {kMiB / 16, kMiB, 16 * kMiB, 256 * kMiB}) {
        if (hosts * per_host == 64 && bytes > kMiB) continue;  // slow to simulate
        const Shape shape = uniform(hosts, per_host);
        const CostModel model = model_of(cluster(shape));
        const Algorithm& picked = *pick(c, shape, bytes, model).algorithm;
        const double us = run(picked, shape, bytes).time_us;
        for (const Algorithm& a : algorithms()) {
          if (a.collective != c || !a.applies(shape) || a.name == picked.name) continue;
          // The messages of this algorithm alone take longer.
          if (floor_us(a, shape, bytes, model) > us) continue;
          const SimResult other = run(a, shape, bytes);
          // Large messages stay on their rails even if that takes 10 % longer.
          const bool leaves = bytes >= kMiB && other.traffic.cross_rail_bytes > 0;
          EXPECT_LE(us, (leaves ? 1.15 : 1.05) * other.time_us)
              << name(c) << " over " << hosts << " x " << per_host << ", " << bytes
              << " bytes: auto takes " << picked.name << ", not " << a.name;
        }
      }
}

// No run is faster than the bound, whatever the bottleneck, and the bound names the bottleneck.
TEST(Cluster, TheBoundHoldsAndNamesWhatLimits) {
  for (const auto& [hosts, per_host] : {std::pair{2, 1}, {1, 4}, {3, 2}, {2, 4}})
    for (const Algorithm& a : algorithms()) {
      const Shape shape = uniform(hosts, per_host);
      if (!a.applies(shape) || a.collective == Collective::kBarrier) continue;
      for (const std::size_t bytes : {std::size_t{4096}, kMiB, 64 * kMiB}) {
        const Bound bound = bound_of(a.collective, shape, bytes, model_of(cluster(shape)));
        EXPECT_LE(bound.us, run(a, shape, bytes).time_us) << full_name(a) << ", " << bytes;
      }
    }
  CostModel model = model_of(cluster(uniform(8, 8)));
  const auto limits = [&](std::size_t bytes) {
    return bound_of(Collective::kAllReduce, uniform(8, 8), bytes, model).limiting;
  };
  EXPECT_EQ(limits(8), "latency");
  EXPECT_EQ(limits(64 * kMiB), "rail");
  model.host.us_per_byte = 8 / 200e3;
  model.rail.us_per_byte = 8 / 100e3;
  EXPECT_EQ(limits(64 * kMiB), "host");
  model.memory_us_per_byte = 8 / 200e3;
  EXPECT_EQ(limits(64 * kMiB), "memory");

  // Links inside a host that are no faster than its rails together determine the bound.
  const Shape shape = uniform(8, 8);
  SimFabricOptions slow_host = cluster(shape);
  slow_host.host.gbps = 200;
  slow_host.rail.gbps = 100;
  const Algorithm& picked =
      *pick(Collective::kAllReduce, shape, 64 * kMiB, model_of(slow_host)).algorithm;
  const double us = simulate(picked, shape, 16 * kMiB, DType::kFloat32, slow_host).time_us;
  const Bound bound = bound_of(Collective::kAllReduce, shape, 64 * kMiB, model_of(slow_host));
  EXPECT_EQ(bound.limiting, "host");
  EXPECT_GT(bound.us / us, .6);
}

}  // namespace
}  // namespace weft
