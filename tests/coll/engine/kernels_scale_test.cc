// labels: fast
// The final division of an average: bit-identical to the CPU's division in every instruction set.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cstddef>
#include <cstdint>
#include <limits>
#include <random>
#include <string>
#include <type_traits>
#include <vector>

#include "coll/engine/kernels.h"
#include "coll/engine/kernels_table.h"

namespace weft {
namespace {

std::vector<const KernelTable*> tables_here() {
  std::vector<const KernelTable*> all{&kernels_base};
#ifdef __x86_64__
  const std::string best = kernel_isa();
  if (best != "base") all.push_back(&kernels_avx2);
  if (best == "avx512") all.push_back(&kernels_avx512);
#endif
  return all;
}

// All values of a short type; for longer types those near the limits, zero, powers of two, and some
// of every magnitude.
template <class T>
std::vector<T> dividends() {
  using U = std::make_unsigned_t<T>;
  std::vector<T> all;
  if constexpr (sizeof(T) <= 2) {
    for (unsigned x = 0; x <= std::numeric_limits<U>::max(); ++x)
      all.push_back(static_cast<T>(static_cast<U>(x)));
  } else {
    for (unsigned bit = 0; bit < 8 * sizeof(T); ++bit)
      for (int around = -3; around <= 3; ++around)
        all.push_back(static_cast<T>((U{1} << bit) + static_cast<U>(around)));
    std::mt19937_64 random(1);
    for (int i = 0; i < 4000; ++i)
      all.push_back(static_cast<T>(static_cast<U>(random()) >> (random() % (8 * sizeof(T)))));
  }
  return all;
}

std::vector<int> divisors() {
  std::vector<int> all;
  for (int n = 1; n <= 300; ++n) all.push_back(n);
  for (int bit = 9; bit <= 30; ++bit)
    for (const int n : {(1 << bit) - 1, 1 << bit, (1 << bit) + 1}) all.push_back(n);
  all.push_back(std::numeric_limits<int>::max());
  return all;
}

template <class T>
class Scale : public ::testing::Test {};

template <DType kType, class T>
struct Typed {
  static constexpr DType type = kType;
  using Element = T;
};
using Integers =
    ::testing::Types<Typed<DType::kInt8, std::int8_t>, Typed<DType::kUInt8, std::uint8_t>,
                     Typed<DType::kInt16, std::int16_t>, Typed<DType::kUInt16, std::uint16_t>,
                     Typed<DType::kInt32, std::int32_t>, Typed<DType::kUInt32, std::uint32_t>,
                     Typed<DType::kInt64, std::int64_t>, Typed<DType::kUInt64, std::uint64_t>>;
TYPED_TEST_SUITE(Scale, Integers);

TYPED_TEST(Scale, OfIntegersIsTheQuotientTowardsZero) {
  using T = typename TypeParam::Element;
  using Wide = std::conditional_t<std::is_signed_v<T>, std::int64_t, std::uint64_t>;
  const std::vector<T> from = dividends<T>();
  std::vector<T> expected(from.size()), got(from.size());
  for (const int n : divisors()) {
    for (std::size_t i = 0; i < from.size(); ++i)
      expected[i] = static_cast<T>(static_cast<Wide>(from[i]) / static_cast<Wide>(n));
    for (const KernelTable* table : tables_here()) {
      const auto scale_of = table->scale[static_cast<int>(TypeParam::type)];
      scale_of(got.data(), from.data(), n, from.size());
      ASSERT_EQ(got, expected) << fmt::format("{} / {}, {}", name(TypeParam::type), n, table->isa);
      got = from;
      scale_of(got.data(), got.data(), n, from.size());
      ASSERT_EQ(got, expected) << fmt::format("in place: {} / {}, {}", name(TypeParam::type), n,
                                              table->isa);
    }
  }
}

}  // namespace
}  // namespace weft
