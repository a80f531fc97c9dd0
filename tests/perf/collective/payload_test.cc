// Payloads are exact in every type, and every kind of corruption is detected.
// ctest: whole
#include "perf/collective/payload.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstring>
#include <tuple>
#include <utility>
#include <vector>

#include "coll/types.h"
#include "perf/collective/exercise.h"
#include "support/jobs/ranks.h"

namespace weft {

static void PrintTo(DType type, std::ostream* out) { *out << name(type); }
static void PrintTo(RedOp op, std::ostream* out) { *out << name(op); }

namespace {

using ::testing::HasSubstr;

std::vector<unsigned char> result_of(const Payload& payload, DType type, std::size_t count, int n,
                                     RedOp op) {
  // The expected reduction, computed from the values through a payload with a single rank. For
  // float it is also written out below, to check the check.
  std::vector<unsigned char> bytes(count * size_of(type));
  for (std::size_t i = 0; i < count; ++i) {
    const double factor = op == RedOp::kPreMulSum ? Payload::kFactor : 1;
    double x = payload.value(0, i) * factor;
    for (int r = 1; r < n; ++r) {
      const double y = payload.value(r, i) * factor;
      const auto a = static_cast<long long>(x), b = static_cast<long long>(y);
      x = op == RedOp::kMin      ? std::min(x, y)
          : op == RedOp::kMax    ? std::max(x, y)
          : op == RedOp::kProd   ? x * y
          : op == RedOp::kBitAnd ? static_cast<double>(a & b)
          : op == RedOp::kBitOr  ? static_cast<double>(a | b)
          : op == RedOp::kBitXor ? static_cast<double>(a ^ b)
                                 : x + y;
    }
    if (op == RedOp::kAvg) x /= n;
    const auto put = [&](auto v) { std::memcpy(&bytes[i * sizeof v], &v, sizeof v); };
    switch (type) {
      case DType::kFloat32:
        put(static_cast<float>(x));
        break;
      case DType::kFloat64:
        put(x);
        break;
      case DType::kInt32:
        put(static_cast<std::int32_t>(x));
        break;
      case DType::kInt64:
        put(static_cast<std::int64_t>(x));
        break;
      default:
        break;
    }
  }
  return bytes;
}

using Combination = std::tuple<DType, RedOp, int>;
class EveryPayload : public ::testing::TestWithParam<Combination> {};

// The largest integer up to which the type represents all integers.
double limit_of(DType type) {
  if (size_of(type) == 1) return type == DType::kBool ? 1 : type == DType::kInt8 ? 127 : 255;
  if (type == DType::kInt16 || type == DType::kUInt16) return type == DType::kInt16 ? 32767 : 65535;
  return type == DType::kFloat16    ? 2048
         : type == DType::kBFloat16 ? 256
         : type == DType::kFloat32  ? 16777216
         : type == DType::kInt32    ? 2147483647
                                    : 9007199254740992;
}

TEST_P(EveryPayload, IsExactWhateverTheOrder) {
  const auto [type, op, n] = GetParam();
  if (!defined(op, type)) return;
  const bool avg_of_bytes = op == RedOp::kAvg && n > limit_of(type);  // has no payload
  const Payload payload(type, op, n);
  bool anything = false;
  for (std::uint64_t i = 0; i < 3000; ++i) {
    double magnitude = 0, sum = 0;
    for (int r = 0; r < n; ++r) {
      const double v = payload.value(r, i);
      EXPECT_EQ(v, std::trunc(v));
      const bool bounded =
          op == RedOp::kMin || op == RedOp::kMax || is_bitwise(op) || type == DType::kBool;
      magnitude = bounded              ? std::max(magnitude, std::fabs(v))
                  : op == RedOp::kProd ? std::max(magnitude, 1.0) * std::fabs(v)
                                       : magnitude + std::fabs(v);
      sum += v;
    }
    ASSERT_LE(magnitude, limit_of(type)) << "a partial sum may round at element " << i;
    if (op == RedOp::kAvg) {
      EXPECT_EQ(std::fmod(sum, n), 0);
    }
    anything |= magnitude > 0;
  }
  EXPECT_TRUE(anything || avg_of_bytes) << "all zeros prove nothing";
}

TEST_P(EveryPayload, ComparesEqualToItselfAcrossThePeriod) {
  const auto [type, op, n] = GetParam();
  if (!defined(op, type) || (op == RedOp::kAvg && n > limit_of(type))) return;
  const Payload payload(type, op, n);
  const std::size_t count = Payload::kPeriod + 1000;
  std::vector<unsigned char> data(count * size_of(type));
  payload.fill(data.data(), count, n - 1, 123);
  EXPECT_EQ(payload.compare(data.data(), count, n - 1, 123).wrong, 0u);
  EXPECT_GT(payload.compare(data.data(), count, n - 1, 124).wrong, 0u) << "shifted by one";
}

INSTANTIATE_TEST_SUITE_P(All, EveryPayload,
                         ::testing::Combine(::testing::ValuesIn(kAllDTypes),
                                            ::testing::ValuesIn(kAllRedOps),
                                            ::testing::Values(1, 2, 3, 7, 8, 64, 100, 129)),
                         [](const auto& info) {
                           return fmt::format("{}_{}_{}", name(std::get<0>(info.param)),
                                              name(std::get<1>(info.param)),
                                              std::get<2>(info.param));
                         });

TEST(Payload, ReductionsAreTheNumbersOneGetsByHand) {
  for (DType type : {DType::kFloat32, DType::kFloat64, DType::kInt32, DType::kInt64})
    for (RedOp op : kAllRedOps) {
      if (!defined(op, type)) continue;
      const Payload payload(type, op, 5);
      const auto bytes = result_of(payload, type, 500, 5, op);
      EXPECT_EQ(payload.compare_reduced(bytes.data(), 500).wrong, 0u) << name(type) << name(op);
    }
}

TEST(Payload, SixteenBitTypesAreEncodedAsTheStandardsSay) {
  // One rank, so that the reduction is the value itself; decoded here by the definition of the
  // formats.
  const Payload half(DType::kFloat16, RedOp::kSum, 1), brain(DType::kBFloat16, RedOp::kSum, 1);
  std::vector<std::uint16_t> h(1000), b(1000);
  half.fill(h.data(), h.size(), 0);
  brain.fill(b.data(), b.size(), 0);
  for (std::size_t i = 0; i < h.size(); ++i) {
    const int exponent = (h[i] >> 10) & 31;
    const double magnitude = exponent == 0 ? std::ldexp(h[i] & 1023, -24)
                                           : std::ldexp(1024 + (h[i] & 1023), exponent - 25);
    EXPECT_EQ(h[i] & 0x8000 ? -magnitude : magnitude, half.value(0, i));
    EXPECT_EQ(std::bit_cast<float>(std::uint32_t{b[i]} << 16), brain.value(0, i));
  }
}

class Damage : public ::testing::Test {
 protected:
  static constexpr std::size_t kCount = 200000;
  Damage() : data_(kCount) {
    for (std::size_t i = 0; i < kCount; ++i) data_[i] = static_cast<float>(payload_.reduced(i));
  }
  Mismatch compare() { return payload_.compare_reduced(data_.data(), kCount); }
  Payload payload_{DType::kFloat32, RedOp::kSum, 4};
  std::vector<float> data_;
};

TEST_F(Damage, NoneIsFoundWhereThereIsNone) { EXPECT_EQ(compare().wrong, 0u); }

TEST_F(Damage, OneFlippedBitIsOneWrongElementWithItsIndex) {
  for (std::size_t at : {std::size_t{0}, std::size_t{65536}, std::size_t{65537}, kCount - 1}) {
    const float good = data_[at];
    data_[at] = std::bit_cast<float>(std::bit_cast<std::uint32_t>(good) ^ 1u);
    EXPECT_EQ(compare().wrong, 1u);
    EXPECT_THAT(compare().first, HasSubstr("element " + std::to_string(at) + " is"));
    data_[at] = good;
  }
}

TEST_F(Damage, SwappedChunksAreFound) {
  const std::size_t chunk = 16384;
  std::swap_ranges(data_.begin(), data_.begin() + chunk, data_.begin() + chunk);
  EXPECT_GT(compare().wrong, 2 * chunk * 9 / 10);
}

TEST_F(Damage, PoisonLeftBehindIsFound) {
  std::memset(&data_[500], kPoison, 10 * sizeof(float));
  EXPECT_EQ(compare().wrong, 10u);
}

TEST_F(Damage, AMissingRankIsFound) {
  for (std::size_t i = 0; i < kCount; ++i) data_[i] -= static_cast<float>(payload_.value(2, i));
  EXPECT_GT(compare().wrong, kCount / 2);
}

TEST_F(Damage, ARankCountedTwiceIsFound) {
  for (std::size_t i = 0; i < kCount; ++i) data_[i] += static_cast<float>(payload_.value(3, i));
  EXPECT_GT(compare().wrong, kCount / 2);
}

// A stray write beyond the result or in the input is reported with its position.
TEST(Exercise, SeesWhatIsWrittenBesideTheResult) {
  testing::run_ranks(testing::places({1}), {}, [](World& world) {
    Communicator comm = world.world();
    constexpr std::size_t kCount = 1000, kBytes = kCount * sizeof(float);
    Memory memory(kBytes, false, false);
    Exercise exercise(comm, {.count = kCount, .bytes = kBytes}, memory);
    exercise.prepare();
    ASSERT_TRUE(exercise.run().ok());
    EXPECT_EQ(exercise.check().wrong, 0u);
    for (const std::size_t behind : {std::size_t{0}, Memory::kGuard - 1}) {
      unsigned char& byte = memory.out.data()[kBytes + behind];
      const unsigned char before = std::exchange(byte, static_cast<unsigned char>(~byte));
      EXPECT_EQ(exercise.check().wrong, 1u);
      EXPECT_THAT(exercise.check().first, HasSubstr("behind the result"));
      byte = before;
    }
    memory.in.data()[5] ^= 1;
    EXPECT_THAT(exercise.check().first, HasSubstr("the input was changed"));
  });
}

}  // namespace
}  // namespace weft
