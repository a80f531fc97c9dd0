// The engine on the simulated fabric: right bits under delays and reordering, on every rank.
// labels: sim
#include "coll/sim/simulate.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <random>

#include "coll/schedule/check.h"
#include "coll/schedules.h"
#include "coll/select/cost.h"
#include "coll/simulated.h"
#include "topo/base/status.h"

namespace weft {

// Printed in place of its bytes when a test fails.
void PrintTo(const Algorithm& a, std::ostream* os) { *os << testing::full_name(a); }

namespace {

using testing::full_name;
using ::testing::HasSubstr;
using testing::is_vector;
using testing::on_one_host;
using testing::round_robin;
using testing::run_with_data;
using testing::uniform;

std::string in_words(const Shape& shape) {
  std::string text = fmt::format("{} ranks", shape.nranks);
  for (const auto& ranks : shape.hosts) text += fmt::format(" {}", ranks.size());
  return text;
}

// Random conditions by seed: delays, reordering, with and without views and eager messages.
SimFabricOptions weather(const Shape& shape, std::uint64_t seed) {
  std::mt19937_64 random(seed);
  const auto one_of = [&](auto... choices) {
    const std::common_type_t<decltype(choices)...> all[] = {choices...};
    return all[random() % std::size(all)];
  };
  SimFabricOptions o = fabric_of(shape, one_of(0, 0, 1, 2));
  o.seed = seed;
  o.delay_us_max = one_of(0.0, 3.0, 200.0);
  o.reorder = o.delay_us_max > 0 && one_of(0, 1);
  o.views = one_of(0, 1, 1);
  o.eager_below = one_of(std::size_t{0}, std::size_t{1024}, std::size_t{8192}, SIZE_MAX);
  o.post_us = one_of(0.0, 0.3);
  o.complete_us = one_of(0.0, 0.7);
  if (one_of(0, 1)) o.cpu_of_rank = o.host_of_rank;
  return o;
}

std::vector<Shape> shapes() {
  std::vector<Shape> all;
  for (const int n : {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 31, 32, 33}) {
    all.push_back(on_one_host(n));
    all.push_back(uniform(n, 1));
  }
  for (int hosts = 1; hosts <= 4; ++hosts)
    for (int per_host = 2; per_host <= 4; ++per_host) {
      all.push_back(uniform(hosts, per_host));
      all.push_back(round_robin(hosts, per_host));
    }
  for (const auto& sizes : {std::vector{2, 1}, {1, 3, 2}, {4, 4, 1}, {1, 5}})
    all.push_back(is_vector(sizes));
  return all;
}

class EveryAlgorithm : public ::testing::TestWithParam<Algorithm> {};

TEST_P(EveryAlgorithm, IsRightBitByBitUnderDelaysAndReordering) {
  const Algorithm& a = GetParam();
  const auto first_count =
      static_cast<std::size_t>(find_algorithm(a.collective, a.name) - algorithms().data());
  std::uint64_t seed = 1 + 1000 * first_count;  // different conditions for each
  for (Shape shape : shapes()) {
    if (!a.applies(shape)) continue;
    const auto n = static_cast<std::size_t>(shape.nranks);
    const bool blocks = by_blocks(a.collective);
    const std::size_t counts[] = {1, n - 1, 97, 40000 / n + 1,
                                  n > 12   ? 5 * n + 1
                                  : blocks ? 40000 / n + 7 * (seed % 1000)
                                           : 50000 + 7 * (seed % 1000)};
    // Each shape runs with each count, and each algorithm with each shape.
    const std::size_t count = counts[(seed + first_count) % std::size(counts)];
    ++seed;
    shape.root = static_cast<Rank>(seed % n);
    const DType type = kAllDTypes[(seed + first_count) % std::size(kAllDTypes)];
    SCOPED_TRACE(fmt::format("{}, {}, count {} of {}, seed {}", full_name(a), in_words(shape),
                             count, name(type), seed));
    run_with_data(a, shape, count, type, weather(shape, seed), seed % 3 == 0);
    if (HasFailure()) return;
  }
}

// Values whose sum depends on the order: all ranks of an all_reduce end with the same bits.
TEST_P(EveryAlgorithm, EndsWithTheSameBitsOnAllRanks) {
  const Algorithm& a = GetParam();
  if (a.collective != Collective::kAllReduce) return;
  Shape snake = uniform(3, 3);
  snake.hosts = {{0, 5, 8}, {1, 4, 6}, {2, 3, 7}};
  for (const Shape& shape : {round_robin(3, 3), round_robin(5, 3), round_robin(7, 4), snake,
                             uniform(6, 3), is_vector({3, 1, 2}), on_one_host(7)}) {
    if (!a.applies(shape)) continue;
    constexpr std::size_t kCount = 500;
    const auto n = static_cast<std::size_t>(shape.nranks);
    std::vector<std::vector<float>> in(n, std::vector<float>(kCount)), out = in;
    std::mt19937 random(1);
    SimBuffers buffers;
    for (std::size_t r = 0; r < n; ++r) {
      for (float& x : in[r]) x = std::normal_distribution<float>()(random);
      buffers.in.push_back(in[r].data());
      buffers.out.push_back(out[r].data());
    }
    simulate(a, shape, kCount, DType::kFloat32, fabric_of(shape), {}, buffers);
    for (std::size_t r = 1; r < n; ++r)
      ASSERT_EQ(out[r], out[0]) << in_words(shape) << ", rank " << r;
  }
}

TEST_P(EveryAlgorithm, RepeatsItselfExactly) {
  const Algorithm& a = GetParam();
  const Shape shape = uniform(3, 2);
  SimFabricOptions options = fabric_of(shape);
  options.delay_us_max = 50;
  options.reorder = true;
  const auto trace = [&](std::uint64_t seed) {
    options.seed = seed;
    return run_with_data(a, shape, 1000, DType::kInt32, options).trace_hash;
  };
  const std::uint64_t first = trace(7);
  EXPECT_EQ(trace(7), first);
  EXPECT_NE(trace(8), first);
}

// Where only messages cost time, blocks are packed; short slices are many rounds.
TEST_P(EveryAlgorithm, IsRightBitByBitInPackedRounds) {
  const Algorithm& a = GetParam();
  if (a.collective != Collective::kReduceScatter && a.collective != Collective::kAllGather) return;
  if (!a.name.starts_with("hierarchical_hd")) return;
  Tuning tuning;
  tuning.model_slice_max = 32 << 10;
  std::uint64_t seed = 1;
  int packed = 0;
  for (const Shape& shape :
       {uniform(4, 4), uniform(7, 3), is_vector({3, 1, 4}), round_robin(5, 2), uniform(17, 1)})
    for (const std::size_t count : {9973, 20011}) {
      if (!a.applies(shape)) continue;
      SimFabricOptions options = weather(shape, ++seed);
      options.cpu_of_rank.clear();
      options.rail.gbps = options.host.gbps = 4000;
      const DType type = seed % 2 ? DType::kInt32 : DType::kFloat64;
      const RedOp op = seed % 3 == 0   ? RedOp::kSum
                       : seed % 3 == 1 ? RedOp::kPreMulSum
                                       : RedOp::kAvg;
      const bool in_place = seed % 4 == 0;
      SCOPED_TRACE(
          fmt::format("{}, {}, count {}, seed {}", full_name(a), in_words(shape), count, seed));
      const auto messages = [&](double us) {
        options.post_us = options.complete_us = us;
        const SimResult r = run_with_data(a, shape, count, type, options, in_place, op, tuning);
        EXPECT_GT(r.rounds, 1);
        return r.traffic.messages / r.rounds;
      };
      packed += messages(200) < messages(0);
    }
  EXPECT_GE(packed, 8);
}

// Ranks with different links (only within a host; only to other hosts) must still slice a message
// alike, and scarce scratch must not deadlock them.
TEST_P(EveryAlgorithm, EndsWhateverTheSizeAndIsNoFasterThanTheBound) {
  const Algorithm& a = GetParam();
  bool views = false;
  for (const Shape& shape :
       {uniform(7, 2), uniform(5, 3), uniform(15, 2), uniform(17, 1), round_robin(3, 5),
        is_vector({3, 2}), is_vector({1, 4, 2}), on_one_host(12)}) {
    if (!a.applies(shape)) continue;
    for (const std::size_t bytes : {100'000u, 3'000'000u, 64u << 20}) {
      views = !views;  // an odd number of sizes: the next shape alternates
      SCOPED_TRACE(fmt::format("{}, {}, {} bytes", full_name(a), in_words(shape), bytes));
      const std::size_t blocks =
          by_blocks(a.collective) ? static_cast<std::size_t>(shape.nranks) : 1;
      const std::size_t count = bytes / 4 / blocks;
      SimFabricOptions options = fabric_of(shape);
      options.carry_data = false;
      options.views = views;
      CostModel model;
      model.host.us_per_byte = 8e-3 / options.host.gbps;
      model.rail.us_per_byte = 8e-3 / options.rail.gbps;
      // The fabric has as many rails as the largest host has ranks.
      for (const auto& host : shape.hosts)
        model.rails_per_host = std::max(model.rails_per_host, static_cast<int>(host.size()));
      const SimResult r = simulate(a, shape, count, DType::kFloat32, options);
      EXPECT_GE(r.time_us * 1.000001,
                lower_bound_us(a.collective, shape, count * blocks * 4, model));
    }
  }
}

TEST_P(EveryAlgorithm, NothingCrossesFromRailToRailWhereItIsHierarchical) {
  const Algorithm& a = GetParam();
  if (a.name.find("hierarchical") == std::string_view::npos) return;
  for (const Shape& shape :
       {uniform(4, 4), uniform(3, 2), round_robin(4, 3), is_vector({3, 1, 2})}) {
    if (!a.applies(shape)) continue;
    SimFabricOptions options = fabric_of(shape);
    const SimResult r = run_with_data(a, shape, 5000, DType::kInt32, options);
    EXPECT_GT(r.traffic.messages, 0u);
    EXPECT_EQ(r.traffic.cross_rail_bytes, 0u) << in_words(shape);
  }
}

// The death of any rank at any time ends the run with an error that names it.
TEST_P(EveryAlgorithm, ADeadRankIsNamed) {
  const Algorithm& a = GetParam();
  std::mt19937_64 random(42);
  for (Shape shape : {uniform(4, 2), uniform(5, 1), on_one_host(6)}) {
    shape.root = 1;
    SimFabricOptions options = fabric_of(shape);
    const double whole_us = run_with_data(a, shape, 20000, DType::kInt32, options).time_us;
    for (int i = 0; i < 8; ++i) {
      options = weather(shape, random());
      options.carry_data = false;
      const auto victim = static_cast<Rank>(random() % static_cast<std::uint64_t>(shape.nranks));
      // The latest time at which the rank is certainly unfinished, since no message has arrived.
      const double latest = std::min(whole_us, options.host.latency_us);
      const double at_us = i < 4 ? latest * 0.2 * i : whole_us * 0.2 * (i - 3);
      options.failures = {{.at_us = at_us, .rank = victim}};
      SCOPED_TRACE(fmt::format("{}, {}, rank {} dies at {} us", full_name(a), in_words(shape),
                               victim, at_us));
      try {
        const SimResult r = simulate(a, shape, 20000, DType::kInt32, options);
        EXPECT_GT(i, 3) << "done before anything could have arrived";
        EXPECT_GT(r.time_us, 0);
      } catch (const Error& e) {
        EXPECT_THAT(e.what(), HasSubstr(fmt::format("rank {}", victim)));
        EXPECT_THAT(e.what(), HasSubstr("died"));
      }
    }
  }
}

// Three ranks, two chunks per block.
Schedule in_halves(const Shape& shape) {
  Schedule s;
  s.rank = shape.rank;
  s.nranks = 3;
  s.nchunks = 6;
  s.block = {0, 0, 1, 1, 2, 2};
  return s;
}

bool three_ranks(const Shape& shape) { return shape.nranks == 3; }

// Rank 2 reduces rank 1's values into both chunks, then rank 0's, starting with the last chunk.
Schedule in_two_turns(const Shape& shape) {
  Schedule s = in_halves(shape);
  if (s.rank == 2) {
    for (const Rank to : {0, 1}) s.send(to, {2 * to, 2});
    s.recv_reduce(1, {4, 2});
    s.recv_reduce(0, {5, 1});
    s.recv_reduce(0, {4, 1});
    return s;
  }
  const Rank other = 1 - s.rank;
  s.send(other, {2 * other, 2});
  if (s.rank == 1) s.send(2, {4, 2});
  if (s.rank == 0) s.send(2, {5, 1});
  if (s.rank == 0) s.send(2, {4, 1});
  for (const Rank from : {other, 2}) s.recv_reduce(from, {2 * s.rank, 2});
  return s;
}

// The engine also runs two separate reductions, even if chunks are moved one by one.
TEST(OwnAlgorithm, ReductionsThatShareAChunkStayApart) {
  const Algorithm a{"two_turns", Collective::kReduceScatter, "", three_ranks, in_two_turns};
  const Shape shape = uniform(3, 1);
  ASSERT_EQ(check(a.collective, testing::build_all(a, shape)), "");
  for (const std::size_t count : {100, 50000}) {  // packed, and in blocks
    std::vector<std::vector<float>> in, out(3, std::vector<float>(count));
    SimBuffers buffers;
    for (const float value : {1.0F, 1e8F, -1e8F}) in.emplace_back(3 * count, value);
    for (std::size_t r = 0; r < 3; ++r) {
      buffers.in.push_back(in[r].data());
      buffers.out.push_back(out[r].data());
    }
    simulate(a, shape, count, DType::kFloat32, fabric_of(shape), {}, buffers);
    EXPECT_EQ(out[2], std::vector<float>(count, 1.0F)) << "(-1e8 + 1e8) + 1";
  }
}

// A quarter of rank 2's block goes directly to rank 0, the rest via rank 1.
Schedule by_a_detour(const Shape& shape) {
  Schedule s = in_halves(shape);
  s.packs = true;
  s.weight = {1, 3, 1, 3, 1, 3};
  if (s.rank == 2) {
    s.send(0, {4, 1});
    s.send(1, {5, 1});
  } else if (s.rank == 1) {
    s.send(0, {2, 2});
    s.recv(2, {5, 1});
    s.send(0, {5, 1}, 1);
  } else {
    s.recv(1, {2, 2});
    s.recv(2, {4, 1});
    s.recv(1, {5, 1}, 1);
  }
  return s;
}

TEST(OwnAlgorithm, ChunksOfABlockHaveTheirWeights) {
  const Algorithm a{"detour", Collective::kGather, "", three_ranks, by_a_detour};
  const Shape shape = uniform(3, 1);
  ASSERT_EQ(check(a.collective, testing::build_all(a, shape)), "");
  for (const std::size_t count : {100U, 400000U}) {
    const SimResult r = run_with_data(a, shape, count, DType::kInt32, fabric_of(shape));
    EXPECT_EQ(r.traffic.host_tx_bytes[2], count * 4);
    EXPECT_NEAR(static_cast<double>(r.traffic.host_tx_bytes[1]), 1.75 * 4 * count, 64) << count;
  }
  for (std::uint64_t seed = 1; seed <= 40; ++seed)
    run_with_data(a, shape, 1 + seed * seed * 211, DType::kInt8, weather(shape, seed), seed % 2);
}

INSTANTIATE_TEST_SUITE_P(Sim, EveryAlgorithm,
                         ::testing::ValuesIn(algorithms().begin(), algorithms().end()),
                         [](const auto& info) {
                           return fmt::format("{}_{}", name(info.param.collective),
                                              info.param.name);
                         });

}  // namespace
}  // namespace weft
