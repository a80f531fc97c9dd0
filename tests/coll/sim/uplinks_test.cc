// Uplinks of leaves in the simulator and in the model: their cost, and the choices of `auto`.
// labels: sim
#include <gtest/gtest.h>

#include "coll/schedules.h"
#include "coll/select/cost.h"
#include "coll/sim/simulate.h"

namespace weft {
namespace {

constexpr std::size_t kMega = 1 << 20;

Shape in_leaves(int hosts, int per_host, int per_leaf) {
  Shape shape = testing::uniform(hosts, per_host);
  for (int h = 0; h < hosts; ++h) shape.leaf.push_back(h / per_leaf);
  return shape;
}

SimFabricOptions cluster(const Shape& shape, double uplink_gbps) {
  SimFabricOptions o = fabric_of(shape, 0, machine_named("h100"));
  o.leaf_of_host = shape.leaf;
  o.uplink_gbps = uplink_gbps;
  return o;
}

// Two hosts of a leaf send 1 MB each to another leaf, or two leaves send to hosts of one: the
// second message waits at the shared uplink.
TEST(Uplinks, AreSharedByTheHostsOfALeaf) {
  const Shape shape = in_leaves(6, 1, 2);
  SimFabricOptions o = fabric_of(shape);
  o.carry_data = false;
  o.rail = {5, 80};
  o.leaf_of_host = shape.leaf;
  Tuning whole;  // messages
  whole.rail_slice_min = whole.rail_slice_max = whole.model_slice_min = whole.model_slice_max =
      kMega;
  const auto us = [&](double gbps, Rank second = 1) {
    o.uplink_gbps = gbps;
    std::vector<Schedule> all(6);
    for (Rank r = 0; r < 6; ++r) {
      all[r].rank = r;
      all[r].nranks = 6;
      all[r].nchunks = 1;
    }
    all[0].send(4, {0, 1});
    all[4].recv(0, {0, 1});
    all[second].send(5, {0, 1});
    all[5].recv(second, {0, 1});
    return simulate(Collective::kAllReduce, all, 250'000, DType::kFloat32, o, whole);
  };
  EXPECT_NEAR(us(0).time_us, 5 + 100, 1e-6);
  EXPECT_EQ(us(0).traffic.uplink_bytes, 2'000'000u);
  EXPECT_NEAR(us(160).time_us, 5 + 50 + 100, 1e-6);
  EXPECT_NEAR(us(80).time_us, 5 + 200, 1e-6);
  EXPECT_NEAR(us(20).time_us, 5 + 2 * 400, 1e-6);
  EXPECT_EQ(us(20).limiting.substr(0, 6), "leaf 0");
  EXPECT_NEAR(us(20, 2).time_us, 5 + 2 * 400, 1e-6);
  EXPECT_EQ(us(20, 2).limiting, "leaf 2 rail 0 down");
}

// The model follows the simulator for equal and unequal leaves, and for enough uplinks.
TEST(Uplinks, AreInTheModel) {
  for (const auto& [shape, gbps] : {std::pair{in_leaves(8, 2, 4), 400.},
                                    {in_leaves(8, 2, 4), 200.},
                                    {in_leaves(9, 2, 4), 200.},
                                    {in_leaves(12, 2, 3), 300.}})
    for (const char* name : {"hierarchical", "hierarchical_hd", "hierarchical_hd4"}) {
      const SimFabricOptions o = cluster(shape, gbps);
      const Algorithm& a = *find_algorithm(Collective::kAllReduce, name);
      const double simulated = simulate(a, shape, 16 * kMega, DType::kFloat32, o).time_us;
      const double predicted = predict(a, shape, 64 * kMega, 4, model_of(o)).time_us;
      EXPECT_NEAR(predicted, simulated, .2 * simulated)
          << name << ", " << shape.hosts.size() << " hosts, " << gbps;
      const Bound bound = bound_of(Collective::kAllReduce, shape, 64 * kMega, model_of(o));
      EXPECT_LE(bound.us, simulated) << name;
    }
}

// The choice of auto is within a tenth of the fastest.
TEST(Uplinks, AutoTakesWhatSparesThem) {
  for (const Collective c :
       {Collective::kAllReduce, Collective::kAllGather, Collective::kReduceScatter})
    for (const Shape& shape : {in_leaves(8, 2, 4), in_leaves(11, 2, 4), in_leaves(16, 2, 2)}) {
      const SimFabricOptions o = cluster(shape, 100);
      const std::size_t count =
          by_blocks(c) ? 16 * kMega / static_cast<std::size_t>(shape.nranks) : 16 * kMega;
      const auto us = [&](const Algorithm& a) {
        return simulate(a, shape, count, DType::kFloat32, o).time_us;
      };
      double best = 1e12;
      for (const char* name : {"hierarchical", "hierarchical_hd", "hierarchical_hd4"})
        best = std::min(best, us(*find_algorithm(c, name)));
      const Pick picked = pick(c, shape, 64 * kMega, model_of(o));
      EXPECT_LE(us(*picked.algorithm), 1.1 * best)
          << name(c) << ", " << shape.hosts.size() << " hosts: " << picked.algorithm->name;
    }
}

// One rank per host stands for all rails, but no host for another.
TEST(Uplinks, OneRailTakesTheTimeOfAll) {
  const Shape shape = in_leaves(8, 2, 4);
  const SimFabricOptions o = cluster(shape, 200);
  const Algorithm& a = *find_algorithm(Collective::kAllReduce, "hierarchical_hd");
  const auto one = one_host_of(a, shape, 4 * kMega, DType::kFloat32, o);
  ASSERT_TRUE(one);
  EXPECT_EQ(one->alike(), Alike::kRails);
  const SimResult all = simulate(a, shape, 4 * kMega, DType::kFloat32, o);
  const SimResult some = simulate_one_host(a, shape, 4 * kMega, DType::kFloat32, o, *one);
  EXPECT_NEAR(some.time_us, all.time_us, 1e-6 * all.time_us);
  EXPECT_EQ(some.traffic.uplink_bytes, all.traffic.uplink_bytes);
  EXPECT_EQ(all.traffic.uplink_bytes,
            least_between_leaves(Collective::kAllReduce, shape, 16 * kMega));
}

}  // namespace
}  // namespace weft
