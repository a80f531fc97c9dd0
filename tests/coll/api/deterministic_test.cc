// Deterministic reductions: bits equal those of a plain loop over the ranks, for every algorithm,
// message size, slicing, set of hosts, memory and kernel path.
// labels: sim
// ctest: whole
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <map>
#include <tuple>

#include "coll/api/communicator.h"
#include "coll/schedule/algorithm.h"
#include "coll/sim/simulate.h"
#include "support/half.h"
#include "support/jobs/ranks.h"
#include "tests/coll/schedules.h"

namespace weft {
namespace {

constexpr DType kFloats[] = {DType::kFloat32, DType::kFloat64, DType::kFloat16, DType::kBFloat16};
constexpr std::size_t kMost = 9001;

float from_bf16(std::uint16_t b) { return std::bit_cast<float>(std::uint32_t{b} << 16); }
std::uint16_t to_bf16(float f) {  // rounds to nearest even
  const auto bits = std::bit_cast<std::uint32_t>(f);
  return static_cast<std::uint16_t>((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}

// Numbers of very different magnitude: any other order of additions changes the bits.
double number(int rank, std::size_t i) {
  std::uint64_t h =
      i * 0x10001 + static_cast<std::uint64_t>(rank) * 0x9e3779b97f4a7c15;  // splitmix64
  h = (h ^ (h >> 30)) * 0xbf58476d1ce4e5b9;
  h = (h ^ (h >> 27)) * 0x94d049bb133111eb;
  h ^= h >> 31;
  const double x = static_cast<double>(h % 20001) / 10000 - 1;
  return std::ldexp(x, static_cast<int>(h >> 40) % 13 - 6);
}

template <class T>
T fold(T x, T y, RedOp op) {
  switch (op) {
    case RedOp::kMin:
      return y < x ? y : x;
    case RedOp::kMax:
      return x < y ? y : x;
    case RedOp::kProd:
      return x * y;
    default:
      return x + y;
  }
}

constexpr double kFactor = 0.3;

// Element i reduced in rank order; `load` and `store` convert the format.
template <class T, class Load, class Store>
void expected_element(std::byte* to, int n, std::size_t i, RedOp op, Load load, Store store) {
  using Bits = decltype(store(T{}));
  const auto input = [&](int r) {
    const T x = load(store(static_cast<T>(number(r, i))));
    // The product is rounded to the type before it is added.
    return op == RedOp::kPreMulSum ? load(store(x * static_cast<T>(kFactor))) : x;
  };
  T sum = input(0);
  for (int r = 1; r < n; ++r) sum = fold(sum, input(r), op);
  Bits bits = store(sum);
  if (op == RedOp::kAvg) bits = store(load(bits) / static_cast<T>(n));
  std::memcpy(to, &bits, sizeof bits);
}

void expected(std::byte* to, int n, std::size_t i, DType type, RedOp op) {
  const auto same = [](auto x) { return x; };
  switch (type) {
    case DType::kFloat32:
      return expected_element<float>(to, n, i, op, same, same);
    case DType::kFloat64:
      return expected_element<double>(to, n, i, op, same, same);
    case DType::kFloat16:
      return expected_element<float>(to, n, i, op, testing::half_to_float, testing::float_to_half);
    default:
      return expected_element<float>(to, n, i, op, from_bf16, to_bf16);
  }
}

void put(std::byte* to, int rank, std::size_t i, DType type) {
  const auto store = [&](auto x) { std::memcpy(to, &x, sizeof x); };
  const double x = number(rank, i);
  if (type == DType::kFloat32) store(static_cast<float>(x));
  if (type == DType::kFloat64) store(x);
  if (type == DType::kFloat16) store(testing::float_to_half(static_cast<float>(x)));
  if (type == DType::kBFloat16) store(to_bf16(static_cast<float>(x)));
}

// The expected result, cached by case.
const std::vector<std::byte>& answer(int n, DType type, RedOp op) {
  static std::map<std::tuple<int, DType, RedOp>, std::vector<std::byte>> known;
  auto& all = known[{n, type, op}];
  if (all.empty()) {
    all.resize(kMost * size_of(type));
    for (std::size_t i = 0; i < kMost; ++i) expected(&all[i * size_of(type)], n, i, type, op);
  }
  return all;
}

struct Way {
  const Algorithm* algorithm;
  Shape shape;
  std::size_t count;  // of the whole message
  std::size_t slice;
  bool in_place;
};

// The first wrong element; -1: none.
long first_wrong(const Way& way, DType type, RedOp op, std::uint64_t seed) {
  const int n = way.shape.nranks;
  const std::size_t e = size_of(type);
  const bool scatters = way.algorithm->collective == Collective::kReduceScatter;
  const std::size_t count = scatters ? way.count / static_cast<std::size_t>(n) : way.count;
  const std::size_t whole = scatters ? count * static_cast<std::size_t>(n) : count;
  std::vector<std::vector<std::byte>> in, out;
  SimBuffers buffers;
  buffers.op = Reduction(op, op == RedOp::kPreMulSum ? kFactor : 1);
  buffers.in_place = way.in_place;
  const std::size_t shift = seed % 2;  // unaligned
  for (int r = 0; r < n; ++r) {
    in.emplace_back(whole * e + 8);
    out.emplace_back(whole * e + 8);
    std::byte* from = in.back().data() + shift;
    for (std::size_t i = 0; i < whole; ++i) put(from + i * e, r, i, type);
    buffers.in.push_back(from);
    std::byte* to = way.in_place ? from : out.back().data() + shift;
    if (way.in_place && scatters) to += static_cast<std::size_t>(r) * count * e;
    buffers.out.push_back(to);
  }
  SimFabricOptions fabric = fabric_of(way.shape, 2);
  fabric.seed = seed;
  fabric.delay_us_max = 30;
  fabric.reorder = true;
  fabric.views = seed % 3 != 0;
  Tuning tuning;
  tuning.host_slice_min = tuning.host_slice_max = tuning.rail_slice_min = tuning.rail_slice_max =
      way.slice;
  simulate(*way.algorithm, way.shape, count, type, fabric, tuning, buffers);
  const auto& right = answer(n, type, op);
  for (int r = 0; r < n; ++r) {
    if (way.algorithm->collective == Collective::kReduce && r != way.shape.root) continue;
    const std::size_t first = scatters ? static_cast<std::size_t>(r) * count : 0;
    for (std::size_t i = 0; i < count; ++i)
      if (std::memcmp(
              static_cast<const std::byte*>(buffers.out[static_cast<std::size_t>(r)]) + i * e,
              &right[(first + i) * e], e) != 0)
        return static_cast<long>(first + i);
  }
  return -1;
}

TEST(Deterministic, TheBitsAreThoseOfALoopOverTheRanks) {
  std::uint64_t seed = 0;
  int free_differs = 0;
  std::vector<Shape> shapes;
  for (const int n : {2, 3, 4, 7, 8, 9, 12, 17}) shapes.push_back(testing::on_one_host(n));
  for (auto [h, l] : {std::pair{2, 2}, {4, 2}, {3, 4}, {8, 1}})
    shapes.push_back(testing::uniform(h, l));
  shapes.push_back(testing::round_robin(4, 2));
  shapes.push_back(testing::is_vector({3, 1, 4}));
  for (const Algorithm& a : algorithms()) {
    if (!reduces(a.collective)) continue;
    for (Shape shape : shapes) {
      if (!a.applies(shape)) continue;
      shape.root = shape.nranks - 1;
      for (const std::size_t count : {17ul, 1025ul, kMost})
        for (const std::size_t slice : {256ul, 4096ul}) {
          ++seed;
          const DType type = kFloats[seed % 4];
          const RedOp op = std::array{RedOp::kSum, RedOp::kAvg, RedOp::kPreMulSum, RedOp::kSum,
                                      RedOp::kProd}[seed % 5];
          const bool in_place = seed % 3 == 0;
          shape.deterministic = false;
          if (op == RedOp::kSum && count > 1000)
            free_differs += first_wrong({&a, shape, count, slice, in_place}, type, op, seed) >= 0;
          shape.deterministic = true;
          ASSERT_EQ(first_wrong({&a, shape, count, slice, in_place}, type, op, seed), -1)
              << testing::full_name(a) << ", " << shape.nranks << " ranks on " << shape.hosts.size()
              << " hosts, " << count << " x " << name(type) << " " << name(op) << ", slices of "
              << slice << (in_place ? ", in place" : "");
        }
    }
  }
  EXPECT_GT(free_differs, 100) << "these numbers would come out right in any order";
}

// On real transports, where small messages use the board and large ones the engine.
TEST(Deterministic, OverRealTransportsAndTheBoard) {
  for (const std::vector<int>& hosts : {std::vector{4}, {2, 2}, {1, 3}}) {
    WorldOptions options;
    options.cross_rail = "allow";  // run every algorithm
    options.deterministic = true;
    testing::run_ranks(testing::places(hosts, 2), options, [](World& world) {
      Communicator comm = world.world();
      const int n = comm.size(), me = comm.rank();
      for (const Algorithm* a : [] {
             std::vector<const Algorithm*> all{nullptr};
             for (const Algorithm& x : algorithms())
               if (x.collective == Collective::kAllReduce) all.push_back(&x);
             return all;
           }()) {
        try {
          comm.set_algorithm(Collective::kAllReduce, a ? a->name : "auto");
        } catch (const Error&) {
          continue;
        }
        for (const std::size_t count : {1ul, 100ul, 9001ul}) {
          std::vector<float> in(count), out(count);
          for (std::size_t i = 0; i < count; ++i) in[i] = static_cast<float>(number(me, i));
          ASSERT_TRUE(
              comm.all_reduce(in.data(), out.data(), count, DType::kFloat32, RedOp::kSum).ok());
          for (std::size_t i = 0; i < count; ++i) {
            float want = 0;
            expected(reinterpret_cast<std::byte*>(&want), n, i, DType::kFloat32, RedOp::kSum);
            ASSERT_EQ(std::bit_cast<std::uint32_t>(out[i]), std::bit_cast<std::uint32_t>(want))
                << (a ? a->name : "auto") << " element " << i << " of " << count;
          }
        }
      }
    });
  }
}

}  // namespace
}  // namespace weft
