// The whole family, generated: every algorithm with every number of ranks, type, operator and size,
// in or out of place, on the simulated fabric in one process; every result is compared bit by bit
// with a reference computed without weft.
// labels: sim
// ctest: whole
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstring>
#include <random>

#include "coll/schedule/algorithm.h"
#include "coll/sim/simulate.h"
#include "support/half.h"
#include "support/pairwise.h"
#include "tests/coll/reference.h"
#include "tests/coll/schedules.h"

namespace weft {
namespace {

using testing::Axis;
using testing::full_name;
using testing::is_vector;
using testing::on_one_host;
using testing::Pairwise;
using testing::Question;
using testing::RankData;
using testing::uniform;

const Axis<int> kRankCounts{
    "rank counts", {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 31, 32, 33}};

SimFabricOptions fabric(const Shape& shape, std::uint64_t seed) {
  SimFabricOptions o = fabric_of(shape, 2);
  o.seed = seed;
  o.delay_us_max = seed % 3 ? 20 : 0;
  o.reorder = seed % 3 == 1;
  o.views = seed % 4 != 0;
  o.eager_below = seed % 2 ? 0 : 8192;
  return o;
}

// Runs the question on all ranks; false, with a test failure, if a result is wrong.
bool holds(const Question& q, const Algorithm& a, std::span<const Schedule> schedules,
           const Shape& shape, std::uint64_t seed, const Tuning& tuning = {}) {
  SimBuffers buffers;
  buffers.op = q.reduction();
  buffers.in_place = q.in_place;
  buffers.root = q.root;
  buffers.counts = q.counts;
  std::vector<RankData> data;
  data.reserve(static_cast<std::size_t>(q.n));
  for (int r = 0; r < q.n; ++r) {
    data.emplace_back(q, r, seed % 5 == 0 ? 1 : 0);
    buffers.in.push_back(data.back().in);
    buffers.out.push_back(data.back().out);
  }
  std::string why;
  try {
    simulate(q.collective, schedules, q.count, q.type, fabric(shape, seed), tuning, buffers);
    for (const RankData& d : data)
      if (why.empty()) why = d.check();
  } catch (const Error& e) {
    why = e.what();
  }
  if (why.empty()) return true;
  ADD_FAILURE() << full_name(a) << ", " << q.words() << ", seed " << seed << ": " << why;
  return false;
}

bool exact(RedOp op, DType type, int n) {
  return op != RedOp::kAvg || !is_floating(type) || (n & (n - 1)) == 0;
}

// Algorithms, except barriers, for which `fits` returns true.
Axis<const Algorithm*> algorithms_that(bool (*fits)(const Algorithm&)) {
  Axis<const Algorithm*> axis{"algorithms", {}};
  for (const Algorithm& a : algorithms())
    if (a.collective != Collective::kBarrier && fits(a)) axis.values.push_back(&a);
  return axis;
}

Shape shape_of(int n, int per_host) {
  Shape shape =
      n % per_host == 0 && n > per_host ? uniform(n / per_host, per_host) : on_one_host(n);
  shape.root = n / 2;
  return shape;
}

Tuning small_slices() {  // more rounds than lanes with little data
  Tuning t;
  t.host_slice_min = t.host_slice_max = t.rail_slice_min = t.rail_slice_max = 512;
  return t;
}

// A few elements, so that many cases fit; large messages follow below.
TEST(Table, EveryTypeAndOperatorByEveryAlgorithmOfEveryRankCount) {
  Pairwise rows(algorithms_that([](const Algorithm&) { return true; }), kRankCounts,
                Axis<DType>{"types", {std::begin(kAllDTypes), std::end(kAllDTypes)}},
                Axis<RedOp>{"operators", {std::begin(kAllRedOps), std::end(kAllRedOps)}},
                Axis<bool>{"in place", {false, true}},
                Axis<std::size_t>{"counts", {3, 4, 5, 6, 7}});
  rows.where([](const Algorithm* a, int n, DType type, RedOp op, bool, std::size_t) {
    return a->applies(shape_of(n, 2)) && defined(op, type) && exact(op, type, n) &&
           (reduces(a->collective) || op == RedOp::kSum);
  });
  std::uint64_t seed = 0;
  for (const auto& [a, n, type, op, in_place, count] : rows.rows("EveryTypeAndOperator")) {
    const Shape shape = shape_of(n, 2);
    const Question q{a->collective, n, count, type, op, in_place, shape.root};
    if (!holds(q, *a, testing::build_all(*a, shape), shape, ++seed)) return;
  }
}

// Sizes without small divisors, several rounds, empty blocks, every kind of host.
TEST(Table, SizesAndHosts) {
  std::vector<Shape> shapes;
  for (const int n : kRankCounts.values) shapes.push_back(on_one_host(n));
  for (auto [h, l] : {std::pair{2, 1}, {2, 2}, {3, 2}, {2, 4}, {4, 4}, {8, 2}, {11, 3}})
    shapes.push_back(uniform(h, l));
  shapes.push_back(testing::round_robin(3, 2));
  shapes.push_back(testing::round_robin(2, 4));
  shapes.push_back(is_vector({2, 1}));
  shapes.push_back(is_vector({1, 4, 2}));
  Axis<std::size_t> hosts{"kinds of hosts", {}};
  for (std::size_t i = 0; i < shapes.size(); ++i) hosts.values.push_back(i);
  constexpr std::size_t kOneLess = 2, kLong = 9001;  // than ranks; shorter with many ranks
  Pairwise rows(algorithms_that([](const Algorithm&) { return true; }), hosts,
                Axis<std::size_t>{"counts", {0, 1, kOneLess, 13, 1021, kLong}},
                Axis<bool>{"in place", {false, true}},
                Axis<DType>{"types", {DType::kInt32, DType::kUInt8}},
                Axis<RedOp>{"operators", {RedOp::kSum, RedOp::kPreMulSum}});
  rows.where([&](const Algorithm* a, std::size_t host, std::size_t, bool, DType, RedOp) {
    return a->applies(shapes[host]);
  });
  std::uint64_t seed = 0;
  for (const auto& [a, host, size, in_place, type, op] : rows.rows("SizesAndHosts")) {
    Shape shape = shapes[host];
    const int n = shape.nranks;
    shape.root = static_cast<Rank>(++seed % static_cast<std::uint64_t>(n));
    const std::size_t count = size == kOneLess          ? static_cast<std::size_t>(n - 1)
                              : size == kLong && n >= 9 ? 2049
                                                        : size;
    const Question q{a->collective, n, count, type, op, in_place, shape.root};
    if (!holds(q, *a, testing::build_all(*a, shape), shape, seed, small_slices())) return;
  }
}

// Blocks of different sizes: some empty, one large, all on one rank.
TEST(Table, BlocksOfDifferentSizes) {
  std::mt19937_64 random(20261120);
  const auto by_blocks_of_any_size = [](const Algorithm& a) {
    return by_blocks(a.collective) &&
           (a.collective != Collective::kAllToAll || a.name == "pairwise");
  };
  Pairwise rows(algorithms_that(by_blocks_of_any_size), kRankCounts,
                Axis<int>{"kinds of sizes", {0, 1, 2, 3}}, Axis<bool>{"in place", {false, true}});
  rows.where([](const Algorithm* a, int n, int, bool) { return a->applies(shape_of(n, 3)); });
  std::uint64_t seed = 0;
  for (const auto& [a, n, kind, in_place] : rows.rows("BlocksOfDifferentSizes")) {
    Shape shape = shape_of(n, 3);
    shape.root = static_cast<Rank>(random() % static_cast<unsigned>(n));
    Question q{a->collective, n, 0, DType::kInt16, RedOp::kSum, in_place, shape.root};
    q.counts.assign(static_cast<std::size_t>(n), std::vector<std::size_t>(n, 0));
    for (int r = 0; r < n; ++r)
      for (int s = 0; s < n; ++s) {
        std::size_t& c = q.counts[static_cast<std::size_t>(r)][static_cast<std::size_t>(s)];
        if (kind == 0) c = random() % 40;
        if (kind == 1) c = random() % 3 ? 0 : random() % 700;
        if (kind == 2) c = r == n - 1 ? 5003 : 0;
        if (kind == 3) c = random() % 2500;
        // In place a rank sends as much as it receives.
        if (in_place && s < r)
          c = q.counts[static_cast<std::size_t>(s)][static_cast<std::size_t>(r)];
      }
    if (!holds(q, *a, testing::build_all(*a, shape), shape, ++seed, small_slices())) return;
  }
}

// ---- numbers that round ----------------------------------------------------------------------

double load(DType type, const std::byte* at) {
  const auto get = [at]<class T>(T v) {
    std::memcpy(&v, at, sizeof v);
    return v;
  };
  if (type == DType::kFloat64) return get(double{});
  if (type == DType::kFloat32) return get(float{});
  const auto bits = get(std::uint16_t{});
  return type == DType::kFloat16 ? testing::half_to_float(bits)
                                 : std::bit_cast<float>(std::uint32_t{bits} << 16);
}

void store(DType type, std::byte* at, double x) {
  const auto put = [at](auto v) { std::memcpy(at, &v, sizeof v); };
  const auto f = static_cast<float>(x);
  if (type == DType::kFloat64) put(x);
  if (type == DType::kFloat32) put(f);
  if (type == DType::kFloat16) put(testing::float_to_half(f));
  if (type == DType::kBFloat16)  // truncated, so any number is valid
    put(static_cast<std::uint16_t>(std::bit_cast<std::uint32_t>(f) >> 16));
}

double epsilon(DType type) {
  return type == DType::kFloat64   ? 0x1p-52
         : type == DType::kFloat32 ? 0x1p-23
         : type == DType::kFloat16 ? 0x1p-10
                                   : 0x1p-7;
}

// In any order of additions: within the rounding error bound, and the same bits on all ranks.
TEST(Table, RandomFloatsWithinTheirRoundings) {
  std::mt19937_64 random(7);
  const auto cases =
      Pairwise(
          algorithms_that([](const Algorithm& a) { return reduces(a.collective); }),
          Axis<int>{"rank counts", {2, 3, 5, 8, 17, 33}},
          Axis<DType>{"types",
                      {DType::kFloat32, DType::kFloat64, DType::kFloat16, DType::kBFloat16}},
          Axis<RedOp>{"operators", {RedOp::kSum, RedOp::kAvg, RedOp::kProd, RedOp::kPreMulSum}})
          .where([](const Algorithm* a, int n, DType, RedOp) {
            return a->applies(n == 8 ? uniform(4, 2) : on_one_host(n));
          })
          .rows("RandomFloats");
  for (const auto& [a, n, type, op] : cases) {
    Shape shape = n == 8 ? uniform(4, 2) : on_one_host(n);
    shape.root = n - 1;
    const bool scatters = a->collective == Collective::kReduceScatter;
    const std::size_t count = 37, e = size_of(type);
    const std::size_t whole = scatters ? count * static_cast<std::size_t>(n) : count;
    constexpr double kScale = 0.7;
    std::vector<std::vector<std::byte>> in, out;
    SimBuffers buffers;
    buffers.op = Reduction(op, kScale);
    std::vector<double> want(whole, op == RedOp::kProd ? 1 : 0), size(whole, 0);
    for (int r = 0; r < n; ++r) {
      in.emplace_back(whole * e);
      out.emplace_back(count * e);
      for (std::size_t i = 0; i < whole; ++i) {
        const double u = static_cast<double>(random() >> 11) * 0x1p-53;
        store(type, &in.back()[i * e], op == RedOp::kProd ? 0.9 + u / 5 : 2 * u - 1);
        const double x = load(type, &in.back()[i * e]);
        const double part = op == RedOp::kPreMulSum ? x * kScale : x;
        want[i] = op == RedOp::kProd ? want[i] * x : want[i] + part;
        size[i] = op == RedOp::kProd ? std::abs(want[i]) : size[i] + std::abs(part);
      }
      buffers.in.push_back(in.back().data());
      buffers.out.push_back(out.back().data());
    }
    simulate(*a, shape, count, type, fabric(shape, random()), {}, buffers);
    for (int r = 0; r < n; ++r) {
      if (a->collective == Collective::kReduce && r != shape.root) continue;
      const auto& got = out[static_cast<std::size_t>(r)];
      if (a->collective == Collective::kAllReduce) {
        ASSERT_EQ(got, out[0]) << "rank " << r;
      }
      for (std::size_t i = 0; i < count; ++i) {
        const std::size_t k = scatters ? static_cast<std::size_t>(r) * count + i : i;
        const double exact = op == RedOp::kAvg ? want[k] / n : want[k];
        const double most = (n + 3) * epsilon(type) * size[k] / (op == RedOp::kAvg ? n : 1);
        ASSERT_NEAR(load(type, &got[i * e]), exact, most)
            << full_name(*a) << " " << name(type) << " " << name(op) << " over " << n;
      }
    }
  }
}

}  // namespace
}  // namespace weft
