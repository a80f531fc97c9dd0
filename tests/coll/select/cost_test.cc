#include "coll/select/cost.h"

#include <gtest/gtest.h>
#include <sys/resource.h>

#include <numeric>
#include <utility>

#include "tests/coll/schedules.h"

namespace weft {
namespace {

using testing::on_one_host;
using testing::uniform;

constexpr double kAlpha = 3, kBeta = 0.001;
constexpr std::size_t kBytes = 1 << 20;

// A model with only latency and bandwidth, equal on all links.
CostModel plain() {
  CostModel m;
  m.host = m.rail = {kAlpha, kBeta};
  m.reduce_us_per_byte = m.step_us = m.fan_in_penalty = 0;
  m.round_bytes = std::size_t{1} << 40;
  return m;
}

double time_of(Collective c, const char* name, const Shape& shape, std::size_t bytes,
               const CostModel& model) {
  return predict(*find_algorithm(c, name), shape, bytes, 4, model).time_us;
}

int ceil_lg(int n) {
  int steps = 0;
  while (1 << steps < n) ++steps;
  return steps;
}

TEST(Cost, RingIsTheFormula) {
  for (int p : {2, 3, 4, 7, 8, 16})
    for (const Shape& shape : {on_one_host(p), uniform(p, 1)}) {
      const double half = (p - 1) * (kAlpha + kBeta * kBytes / p);
      EXPECT_NEAR(time_of(Collective::kAllReduce, "ring", shape, kBytes, plain()), 2 * half, 1e-6);
      EXPECT_NEAR(time_of(Collective::kAllGather, "ring", shape, kBytes, plain()), half, 1e-6);
      EXPECT_NEAR(time_of(Collective::kReduceScatter, "ring", shape, kBytes, plain()), half, 1e-6);
    }
}

TEST(Cost, RecursiveDoublingIsTheFormula) {
  for (int p : {2, 4, 8, 16, 32})
    EXPECT_NEAR(
        time_of(Collective::kAllReduce, "recursive_doubling", on_one_host(p), kBytes, plain()),
        ceil_lg(p) * (kAlpha + kBeta * kBytes), 1e-6);
  // The fold adds one message before and one after. Latencies of concurrent messages are hidden.
  for (int p : {3, 5, 7, 9}) {
    const double t =
        time_of(Collective::kAllReduce, "recursive_doubling", on_one_host(p), kBytes, plain());
    EXPECT_GE(t, 2 * kAlpha + (ceil_lg(p) + 1) * kBeta * kBytes - 1e-6);
    EXPECT_LE(t, (ceil_lg(p) + 1) * (kAlpha + kBeta * kBytes) + 1e-6);
  }
}

TEST(Cost, HalvingDoublingIsTheFormulaForEveryCount) {
  for (int p : {2, 4, 8, 16, 32})
    EXPECT_NEAR(
        time_of(Collective::kAllReduce, "halving_doubling", on_one_host(p), kBytes, plain()),
        2 * ceil_lg(p) * kAlpha + 2.0 * (p - 1) / p * kBeta * kBytes, 1e-6);
  // A range that wraps is two messages; the second one's latency may show in a step.
  for (int p : {5, 7, 13, 31}) {
    const double t =
        time_of(Collective::kAllReduce, "halving_doubling", uniform(p, 1), kBytes, plain());
    EXPECT_GE(t, 2 * ceil_lg(p) * kAlpha + 2.0 * (p - 1) / p * kBeta * kBytes - 1e-6);
    EXPECT_LE(t, 4 * ceil_lg(p) * kAlpha + 2.0 * (p - 1) / p * kBeta * kBytes + 1e-6);
  }
  // Three ranks exchange thirds in one step.
  for (const auto& [p, steps] : {std::pair{3, 1}, {6, 2}, {9, 2}, {12, 3}, {24, 4}})
    EXPECT_NEAR(time_of(Collective::kAllReduce, "halving_doubling", uniform(p, 1), kBytes, plain()),
                2 * steps * kAlpha + 2.0 * (p - 1) / p * kBeta * kBytes, 1e-6)
        << p;
}

TEST(Cost, DirectIsTwoLatencies) {
  for (int p : {2, 3, 5, 8})
    EXPECT_NEAR(time_of(Collective::kAllReduce, "direct", uniform(p, 1), kBytes, plain()),
                2 * kAlpha + 2.0 * (p - 1) / p * kBeta * kBytes, 1e-6);
}

TEST(Cost, ReductionsAndStepsAreCounted) {
  CostModel m = plain();
  m.reduce_us_per_byte = 0.002;
  m.step_us = 0.5;
  const int p = 4;
  // Each of the 2 (p-1) steps of the ring is a send and a receive; half of the receives reduce.
  EXPECT_NEAR(time_of(Collective::kAllReduce, "ring", on_one_host(p), kBytes, m),
              2 * (p - 1) * (kAlpha + kBeta * kBytes / p + 2 * 0.5) + (p - 1) * 0.002 * kBytes / p,
              1e-6);
}

TEST(Cost, DirectReducesInOnePass) {
  CostModel m = plain();
  m.reduce_us_per_byte = 0.002;
  const int p = 4;
  const double moved = 2 * kAlpha + 2.0 * (p - 1) / p * kBeta * kBytes;
  EXPECT_NEAR(time_of(Collective::kAllReduce, "direct", on_one_host(p), kBytes, m),
              moved + 0.002 * kBytes / p, 1e-6);
}

TEST(Cost, ReachesTheBoundOnAllRails) {
  CostModel m = plain();
  m.host = {0, 0};
  m.rail.alpha_us = 0;
  for (int hosts : {2, 3, 4, 8})
    for (int g : {1, 2, 8}) {
      const Shape shape = uniform(hosts, g);
      const double bound = lower_bound_us(Collective::kAllReduce, shape, kBytes, m);
      EXPECT_NEAR(bound, 2.0 * (hosts - 1) / hosts * kBytes * kBeta / g, 1e-6);
      for (const char* name : {"hierarchical", "hierarchical_hd"})
        EXPECT_NEAR(time_of(Collective::kAllReduce, name, shape, kBytes, m), bound, 1e-6) << name;
    }
}

TEST(Cost, RanksShareARail) {
  CostModel m = plain();
  m.host = {0, 0};
  m.rail.alpha_us = 0;
  m.rails_per_host = 1;
  const Shape shape = uniform(4, 4);
  EXPECT_NEAR(lower_bound_us(Collective::kAllReduce, shape, kBytes, m), 1.5 * kBytes * kBeta, 1e-6);
  const Prediction p =
      predict(*find_algorithm(Collective::kAllReduce, "hierarchical"), shape, kBytes, 4, m);
  EXPECT_NEAR(p.rail_us, 1.5 * kBytes * kBeta, 1e-6);
  EXPECT_EQ(p.limiting, "rail");
  // The schedule of one rank represents all ranks on its rail.
  const Schedule own = find_algorithm(Collective::kAllReduce, "hierarchical")->build(shape);
  EXPECT_NEAR(predict(own, shape, kBytes, 4, 1, m).rail_us, p.rail_us, 1e-6);
}

TEST(Cost, ChunksThatSayTheirBlocksAreThoseThatNeedNot) {
  const CostModel m = plain();
  const Shape shape = uniform(3, 1);
  Schedule s = find_algorithm(Collective::kAllToAll, "pairwise")->build(shape);
  ASSERT_TRUE(s.block.empty());
  const double time_us = predict(s, shape, kBytes, 4, 1, m).time_us;
  s.block.resize(static_cast<std::size_t>(s.nchunks));
  std::iota(s.block.begin(), s.block.end(), 0);
  EXPECT_NEAR(predict(s, shape, kBytes, 4, 1, m).time_us, time_us, 1e-6);
}

TEST(Cost, UnequalRailsTakeEquallyLong) {
  CostModel m = plain();
  m.host = {0, 0};
  m.rail.alpha_us = 0;
  Shape shape = uniform(2, 2);
  shape.rail_weight = {3, 1};
  EXPECT_NEAR(time_of(Collective::kAllReduce, "hierarchical", shape, kBytes, m),
              lower_bound_us(Collective::kAllReduce, shape, kBytes, m), 1e-6);
}

TEST(Cost, RoundsOverlapTheStages) {
  CostModel m = plain();
  m.host.alpha_us = m.rail.alpha_us = 0;
  const Shape shape = uniform(4, 4);
  const Schedule own = find_algorithm(Collective::kAllReduce, "hierarchical")->build(shape);
  const Prediction one = predict(own, shape, kBytes, 4, 1, m);
  const Prediction many = predict(own, shape, kBytes, 4, 64, m);
  EXPECT_NEAR(one.time_us, one.rail_us + one.host_us, 1e-6);
  const double stage = std::max(one.rail_us, one.host_us);
  EXPECT_NEAR(many.time_us, one.time_us / 64 + 63 * stage / 64, 1e-6);
  // At most as many rounds as a chunk has elements: 16 chunks of 2.
  EXPECT_EQ(predict(own, shape, 128, 4, 64, m).time_us, predict(own, shape, 128, 4, 2, m).time_us);
}

TEST(Cost, OneRankOrOneHostStandForAll) {
  const CostModel m;
  for (const char* name : {"ring", "direct", "halving_doubling", "recursive_doubling",
                           "hierarchical", "hierarchical_hd", "hierarchical_rd", "flat"})
    for (const Shape& shape : {uniform(8, 1), uniform(4, 2), on_one_host(8)}) {
      const Algorithm& a = *find_algorithm(Collective::kAllReduce, name);
      const auto all = testing::build_all(a, shape);
      const double time = predict(all, shape, kBytes, 4, 1, m).time_us;
      const std::span host(all.data(), shape.hosts.empty() ? 3 : shape.hosts[0].size());
      EXPECT_NEAR(predict(host, shape, kBytes, 4, 1, m).time_us, time, time * .2) << name;
      if (shape.hosts.size() != 4) {  // if all ranks are alike
        EXPECT_NEAR(predict(all[0], shape, kBytes, 4, 1, m).time_us, time, time * .1) << name;
      }
    }
}

TEST(Cost, LowerBounds) {
  const CostModel m = plain();
  const double unit = kBytes * kBeta;
  EXPECT_NEAR(lower_bound_us(Collective::kAllGather, uniform(4, 2), kBytes, m), .75 * unit / 2,
              1e-6);
  EXPECT_NEAR(lower_bound_us(Collective::kReduceScatter, uniform(4, 2), kBytes, m), .75 * unit / 2,
              1e-6);
  EXPECT_NEAR(lower_bound_us(Collective::kBroadcast, uniform(4, 2), kBytes, m), unit / 2, 1e-6);
  EXPECT_NEAR(lower_bound_us(Collective::kAllReduce, on_one_host(4), kBytes, m), 1.5 * unit, 1e-6);
  // Hosts of 2 ranks and of 1, one rail each: the root's host already has its own blocks.
  for (Collective c : {Collective::kGather, Collective::kScatter})
    for (Rank root : {0, 2}) {
      Shape shape = testing::is_vector({2, 1});
      shape.root = root;
      const double bound = lower_bound_us(c, shape, kBytes, m);
      EXPECT_NEAR(bound, (root == 0 ? 1 : 2) * unit / 3, 1e-6) << name(c);
    }
  // A host with one rail needs the time of the whole message, which it need not forward.
  EXPECT_NEAR(lower_bound_us(Collective::kAllReduce, testing::is_vector({3, 3, 3, 1}), kBytes, m),
              unit, 1e-6);
  EXPECT_NEAR(lower_bound_us(Collective::kAllReduce, testing::is_vector({2, 2, 2, 1}), kBytes, m),
              unit, 1e-6);
  EXPECT_NEAR(lower_bound_us(Collective::kAllReduce, testing::is_vector({3, 3, 3, 2}), kBytes, m),
              6 * unit / 11, 1e-6);
  EXPECT_NEAR(lower_bound_us(Collective::kAllToAll, testing::is_vector({3, 1}), kBytes, m),
              .75 * unit, 1e-6);
  // Within a host, each rank of a scatter reads its part, and the root of a gather reads all.
  EXPECT_NEAR(lower_bound_us(Collective::kScatter, on_one_host(8), kBytes, m), unit / 8, 1e-6);
  EXPECT_NEAR(lower_bound_us(Collective::kGather, on_one_host(8), kBytes, m), .875 * unit, 1e-6);
  EXPECT_EQ(lower_bound_us(Collective::kBarrier, uniform(4, 2), 0, m), 0);
  EXPECT_EQ(lower_bound_us(Collective::kAllReduce, on_one_host(1), kBytes, m), 0);
  for (Collective c : {Collective::kAllReduce, Collective::kAllGather, Collective::kReduceScatter,
                       Collective::kBroadcast, Collective::kGather, Collective::kScatter})
    for (const Shape& shape :
         {on_one_host(8), uniform(4, 1), uniform(4, 2), uniform(3, 5), testing::is_vector({2, 1})})
      for (const Algorithm& a : algorithms())
        if (a.collective == c && a.applies(shape)) {
          EXPECT_GE(predict(a, shape, kBytes, 4, m).time_us * 1.000001,
                    lower_bound_us(c, shape, kBytes, m))
              << testing::full_name(a) << " beats the bound on " << shape.nranks << " ranks";
        }
}

TEST(Pick, FewStepsForSmallMessages) {
  const CostModel m;
  const auto algorithm = [&](const Shape& shape, std::size_t bytes) {
    return pick(Collective::kAllReduce, shape, bytes, m).algorithm->name;
  };
  EXPECT_EQ(algorithm(on_one_host(2), 8), "flat");
  EXPECT_EQ(algorithm(on_one_host(4), std::size_t{64} << 20), "direct");
  EXPECT_EQ(algorithm(on_one_host(64), 8), "recursive_doubling");
  EXPECT_EQ(algorithm(uniform(4, 2), std::size_t{64} << 20), "hierarchical");
  EXPECT_EQ(algorithm(uniform(8, 4), std::size_t{64} << 20), "hierarchical_hd");
  EXPECT_EQ(algorithm(uniform(64, 8), std::size_t{1} << 20), "hierarchical_hd4");
  EXPECT_NE(algorithm(uniform(8, 4), 8), "ring");
  EXPECT_NE(algorithm(uniform(8, 4), 8), "direct");
}

// Sockets at 400 Mbit/s: most of a short message's time is CPU time.
TEST(Pick, TheFewestMessagesWhereRanksShareCores) {
  CostModel m;
  m.rail = {2, 8e-3 / .4, 4};
  const auto algorithm = [&](const Shape& shape, std::size_t bytes) {
    return pick(Collective::kAllReduce, shape, bytes, m).algorithm->name;
  };
  EXPECT_EQ(algorithm(uniform(8, 1), 8), "recursive_doubling");
  m.oversubscription = 4;
  EXPECT_EQ(algorithm(uniform(8, 1), 8), "tree");
  EXPECT_EQ(pick(Collective::kBarrier, uniform(8, 1), 0, m).algorithm->name, "tree");
  // This does not apply if bandwidth dominates.
  EXPECT_EQ(algorithm(uniform(8, 1), 1 << 20), "ring");
  EXPECT_EQ(algorithm(uniform(4, 2), 1 << 20), "hierarchical");
  EXPECT_EQ(algorithm(uniform(6, 2), 1 << 20), "hierarchical");
}

TEST(Pick, NamesTheRunnerUp) {
  const Pick p = pick(Collective::kAllReduce, uniform(4, 2), kBytes, CostModel{});
  ASSERT_NE(p.algorithm, nullptr);
  ASSERT_NE(p.runner_up, nullptr);
  EXPECT_NE(p.algorithm, p.runner_up);
  EXPECT_LE(p.prediction.time_us, p.runner_up_prediction.time_us * 1.01);
  for (const Algorithm& a : algorithms())
    if (a.collective == Collective::kAllReduce && &a != p.algorithm) {
      EXPECT_GE(predict(a, uniform(4, 2), kBytes, 4, CostModel{}).time_us,
                p.runner_up_prediction.time_us);
    }
  // On one host, hierarchical equals direct.
  const Pick one_host = pick(Collective::kAllReduce, on_one_host(4), kBytes, CostModel{});
  EXPECT_EQ(one_host.algorithm->name, "direct");
  EXPECT_NE(one_host.runner_up->name, "hierarchical");
  EXPECT_EQ(pick(Collective::kAllReduce, on_one_host(1), kBytes, CostModel{}).algorithm->name,
            "direct");
}

TEST(Pick, IsTheSameOnEveryRank) {
  for (Collective c : {Collective::kAllReduce, Collective::kAllGather, Collective::kReduceScatter,
                       Collective::kBroadcast, Collective::kBarrier})
    for (std::size_t bytes : {std::size_t{0}, std::size_t{8}, std::size_t{1} << 16, kBytes * 64}) {
      Shape shape = testing::is_vector({3, 2, 4});
      shape.root = 5;
      const Pick first = pick(c, shape, bytes, CostModel{});
      for (shape.rank = 1; shape.rank < shape.nranks; ++shape.rank) {
        const Pick other = pick(c, shape, bytes, CostModel{});
        EXPECT_EQ(other.algorithm, first.algorithm);
        EXPECT_EQ(other.runner_up, first.runner_up);
        EXPECT_EQ(other.prediction.time_us, first.prediction.time_us);
      }
    }
}

TEST(Pick, WorksAtEveryScale) {
  for (Collective c : {Collective::kAllReduce, Collective::kAllGather, Collective::kReduceScatter,
                       Collective::kBroadcast, Collective::kBarrier})
    for (const Shape& shape : {on_one_host(1), on_one_host(2), uniform(128, 8)}) {
      const Pick p = pick(c, shape, kBytes, CostModel{});
      ASSERT_NE(p.algorithm, nullptr);
      EXPECT_GE(p.prediction.time_us, 0);
    }
}

// The schedules kept in memory are a fraction of n * n messages or blocks.
TEST(Pick, ManyRanksTakeLittleMemory) {
  const auto grown_MiB = [](Collective c, const char* name, const Shape& shape) {
    const auto peak = [] {
      rusage usage{};
      getrusage(RUSAGE_SELF, &usage);
      return usage.ru_maxrss >> 10;
    };
    const auto before = peak();
    EXPECT_GT(predict(*find_algorithm(c, name), shape, kBytes, 4, CostModel{}).time_us, 0);
    return peak() - before;
  };
  EXPECT_LT(grown_MiB(Collective::kReduce, "direct", uniform(112, 8)), 60);
  EXPECT_LT(grown_MiB(Collective::kAllToAll, "hierarchical", uniform(256, 8)), 200);
}

}  // namespace
}  // namespace weft
