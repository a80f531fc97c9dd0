// Hosts that share uplinks: every algorithm is correct, and rail algorithms send little over them.
// Hosts of unequal sizes: every rail algorithm is correct and stays on its rails.
// labels: sim
// ctest: whole
#include <gtest/gtest.h>

#include <numeric>
#include <random>
#include <string>

#include "coll/schedule/building_blocks.h"
#include "coll/schedule/check.h"
#include "coll/schedule/rail_contract.h"
#include "coll/select/cost.h"
#include "tests/coll/schedules.h"

namespace weft {
namespace {

using testing::build_all;
using testing::full_name;

constexpr Collective kOfLeaves[] = {Collective::kAllReduce, Collective::kAllGather,
                                    Collective::kReduceScatter};

std::vector<int> leaves_of(const std::vector<int>& sizes) {
  std::vector<int> leaf;
  for (std::size_t l = 0; l < sizes.size(); ++l)
    leaf.insert(leaf.end(), static_cast<std::size_t>(sizes[l]), static_cast<int>(l));
  return leaf;
}

// Leaves of at least 3 hosts; a host alone on its leaf must send across whatever its partners are.
std::vector<int> random_leaves(int hosts, std::mt19937& random) {
  std::vector<int> leaf;
  for (int l = 0; hosts > static_cast<int>(leaf.size()); ++l) {
    const int left = hosts - static_cast<int>(leaf.size()),
              size = 3 + static_cast<int>(random() % 10);
    leaf.insert(leaf.end(), static_cast<std::size_t>(left - size < 3 ? left : size), l);
  }
  return leaf;
}

// The share of the message that crosses leaves.
double between_leaves(const std::vector<Schedule>& all, const Shape& shape) {
  std::vector<int> leaf(static_cast<std::size_t>(shape.nranks));
  for (std::size_t h = 0; h < shape.hosts.size(); ++h)
    for (const Rank r : shape.hosts[h]) leaf[r] = shape.leaf[h];
  double chunks = 0;
  for (const Schedule& s : all)
    for (const Step& step : s.steps)
      if (step.op == Op::kSend && leaf[s.rank] != leaf[step.peer]) chunks += step.at.count;
  return chunks / all[0].nchunks;
}

double of_least(Collective collective, const char* name, const Shape& shape) {
  constexpr std::size_t kBytes = 1 << 20;
  return between_leaves(build_all(*find_algorithm(collective, name), shape), shape) * kBytes /
         least_between_leaves(collective, shape, kBytes);
}

TEST(Leaves, AlgorithmsAreRightWhateverTheLeavesAre) {
  std::vector<Shape> shapes;
  for (const std::vector<int>& sizes : {std::vector{2, 2},
                                        {3, 3},
                                        {4, 4, 4},
                                        {2, 2, 2, 2, 2},
                                        {1, 1, 1},
                                        {5},
                                        {3, 2},
                                        {1, 4, 3},
                                        {5, 5, 1},
                                        {8, 8}}) {
    shapes.push_back(testing::uniform(std::accumulate(sizes.begin(), sizes.end(), 0), 2));
    shapes.back().leaf = leaves_of(sizes);
  }
  shapes.push_back(testing::round_robin(6, 3));
  shapes.back().leaf = {7, 0, 7, 0, 7, 0};  // scattered, in no order
  shapes.push_back(testing::is_vector({3, 1, 2, 4}));
  shapes.back().leaf = {0, 1, 0, 1};
  for (const Collective c : kOfLeaves)
    for (const Algorithm& a : algorithms())
      for (Shape shape : shapes)
        for (const bool deterministic : {false, true}) {
          if (a.collective != c || !a.applies(shape)) continue;
          shape.deterministic = deterministic;
          EXPECT_EQ(check(c, build_all(a, shape), {.canonical = deterministic && reduces(c)}), "")
              << full_name(a) << ", " << shape.hosts.size() << " hosts";
        }
}

TEST(Leaves, EqualOnesGetTheFewestBytes) {
  for (const Collective c : kOfLeaves)
    for (const char* name : {"hierarchical_hd", "hierarchical_hd4"})
      for (auto [leaves, hosts] : {std::pair{2, 2}, {2, 16}, {4, 8}, {3, 5}, {5, 7}, {16, 2}}) {
        Shape shape = testing::uniform(leaves * hosts, 2);
        shape.leaf = leaves_of(std::vector(static_cast<std::size_t>(leaves), hosts));
        EXPECT_NEAR(of_least(c, name, shape), 1, 1e-9) << leaves << " leaves of " << hosts;
        std::ranges::shuffle(shape.leaf, std::mt19937(1));
        EXPECT_NEAR(of_least(c, name, shape), 1, 1e-9) << leaves << " leaves of " << hosts;
      }
}

// A ring enters each leaf once, whatever the order of hosts in the job.
TEST(Leaves, ARingPassesEachUplinkOnce) {
  Shape shape = testing::uniform(24, 2);
  for (int h = 0; h < 24; ++h) shape.leaf.push_back(h % 6);
  for (const Collective c : kOfLeaves)
    EXPECT_NEAR(of_least(c, "hierarchical", shape), 6. / 5 * 23 / 24, 1e-9);
}

// Halving and doubling without regard to neighbors.
Schedule halving_by_distance(const Shape& shape) {
  Schedule s = empty_schedule(shape, shape.nranks);
  const Layout layout(shape);
  halving_reduce_scatter<2>(s, layout.rail(), s.all(), kRailChannel);
  doubling_all_gather<2>(s, layout.rail(), s.all(), kRailChannel);
  return s;
}

TEST(Leaves, UnknownOnesGetAtMostFourFifthsOfTheBytesOfHalvingDoubling) {
  std::mt19937 random(3);
  const Algorithm plain{"", Collective::kAllReduce, "", any_shape, halving_by_distance};
  const Algorithm& bine = *find_algorithm(Collective::kAllReduce, "hierarchical_hd");
  for (int hosts : {8, 12, 16, 24, 32, 48, 64, 96, 128})
    for (int i = 0; i < 20; ++i) {
      Shape shape = testing::uniform(hosts, 1);
      const auto aware = build_all(bine, shape), unaware = build_all(plain, shape);
      shape.leaf = random_leaves(hosts, random);
      if (shape.leaf.back() == 0) continue;
      EXPECT_LE(between_leaves(aware, shape), .8 * between_leaves(unaware, shape))
          << hosts << " hosts, case " << i;
    }
}

// With circulant steps, only the sum over all cases is less.
TEST(Leaves, UnknownOnesGetFewerBytesByCirculantSteps) {
  std::mt19937 random(4);
  const Algorithm plain{"", Collective::kAllReduce, "", any_shape, halving_by_distance};
  for (int hosts : {30, 33, 65, 91, 100}) {
    const bool of_five = hosts % 10 == 0;  // with radix 4 these have an order by distance
    const Algorithm& near =
        *find_algorithm(Collective::kAllReduce, of_five ? "hierarchical_hd4" : "hierarchical_hd");
    Shape shape = testing::uniform(hosts, 1);
    const auto aware = build_all(near, shape), unaware = build_all(plain, shape);
    double less = 0, all = 0;
    for (int i = 0; i < 20; ++i) {
      shape.leaf = random_leaves(hosts, random);
      less += between_leaves(aware, shape);
      all += between_leaves(unaware, shape);
    }
    EXPECT_LE(less, .8 * all) << hosts << " hosts: " << less / all;
  }
}

// Unequal leaves are treated as unknown, but in the order of leaves.
TEST(Leaves, UnequalOnesDoNotDependOnTheOrderOfHosts) {
  Shape shape = testing::uniform(16, 1);
  shape.leaf = leaves_of({3, 7, 6});
  const double in_order = of_least(Collective::kAllReduce, "hierarchical_hd", shape);
  EXPECT_LT(in_order, 2.3);
  std::ranges::shuffle(shape.leaf, std::mt19937(1));
  Shape sorted = shape;
  EXPECT_LT(of_least(Collective::kAllReduce, "hierarchical_hd", sorted), 2.3);
}

Shape random_unequal(std::mt19937& random) {
  std::vector<int> sizes(2 + random() % 5);
  for (int& size : sizes) size = 1 + static_cast<int>(random() % 5);
  Shape shape = testing::is_vector(sizes);
  // Each rank on a separate rail; some hosts lack the first rails.
  for (const auto& ranks : shape.hosts) {
    const int first = static_cast<int>(random() % 2);
    for (std::size_t l = 0; l < ranks.size(); ++l)
      shape.rail.push_back(first + static_cast<int>(l));
  }
  return shape;
}

TEST(UnequalHosts, AlgorithmsAlongRailsAreRightAndKeepToThem) {
  std::mt19937 random(5);
  int unequal = 0;
  for (int i = 0; i < 150; ++i) {
    Shape shape = random_unequal(random);
    shape.root = static_cast<Rank>(random() % static_cast<unsigned>(shape.nranks));
    unequal += !uniform_hosts(shape);
    // If no rail is on all hosts, some data must cross.
    bool common = false;
    for (int rail = 0; rail < 2; ++rail)
      common = common || std::ranges::all_of(shape.hosts, [&](const auto& ranks) {
                 return std::ranges::any_of(ranks, [&](Rank r) { return shape.rail[r] == rail; });
               });
    for (const Algorithm& a : algorithms()) {
      if (!a.name.starts_with("hierarchical") || a.name == "hierarchical_leader" ||
          !a.applies(shape))
        continue;
      for (const int credits : {0, 2})
        EXPECT_EQ(
            check(a.collective, build_all(a, shape), {.credits = credits, .root = shape.root}), "")
            << full_name(a) << ", case " << i;
      const auto breach = find_breach(a, shape);
      if (common && !uniform_hosts(shape) && breach)
        ADD_FAILURE() << full_name(a) << ", case " << i << ": " << to_string(*breach);
    }
  }
  EXPECT_GT(unequal, 100);
}

// The extra data of larger hosts is spread over all rails.
TEST(UnequalHosts, RailsCarryAboutTheSame) {
  for (const Collective c : {Collective::kAllGather, Collective::kReduceScatter})
    for (const char* name : {"hierarchical", "hierarchical_hd"}) {
      std::vector<double> by_rail(4, 0);
      for (const Schedule& s :
           build_all(*find_algorithm(c, name), testing::is_vector({8, 4, 5, 6, 5, 8, 7, 5})))
        for (const Step& step : s.steps)
          if (step.op == Op::kSend && step.channel == kRailChannel) {
            std::vector<double> chunks(48, 0);
            for (const int b : s.block) ++chunks[b];
            Shape shape = testing::is_vector({8, 4, 5, 6, 5, 8, 7, 5});
            shape.rank = s.rank;
            for (int i = step.at.first; i < step.at.end(); ++i)
              by_rail[Layout(shape).my_local()] += 1 / chunks[s.block[i]];
          }
      const double all = std::accumulate(by_rail.begin(), by_rail.end(), 0.);
      EXPECT_EQ(all, 48 * 7) << name;
      for (const double one : by_rail) EXPECT_LE(one, 1.1 * all / 4) << name;
    }
}

}  // namespace
}  // namespace weft
