// labels: fast
// Reductions on host memory: an element's result depends only on its own sources.
#include "coll/engine/kernels.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <random>
#include <string>
#include <vector>

#include "coll/engine/kernels_table.h"

namespace weft {
namespace {

// Kernel tables that this CPU supports.
std::vector<const KernelTable*> tables() {
  std::vector<const KernelTable*> all{&kernels_base};
#ifdef __x86_64__
  const std::string best = kernel_isa();
  if (best != "base") all.push_back(&kernels_avx2);
  if (best == "avx512") all.push_back(&kernels_avx512);
#endif
  return all;
}

// Random bits with many zeros, infinities and NaNs of both signs and of all kinds.
template <class Bits>
std::vector<Bits> values(std::size_t count, int mantissa, std::mt19937_64& random) {
  const Bits sign = Bits{1} << (sizeof(Bits) * 8 - 1);
  const Bits infinity = (sign - 1) >> mantissa << mantissa;
  std::vector<Bits> all(count);
  for (Bits& x : all) {
    const auto any = static_cast<Bits>(random());
    const auto bit = static_cast<Bits>(any & sign), small = static_cast<Bits>(any % 100);
    switch (random() % 5) {
      case 0:
        x = bit;
        break;
      case 1:
        x = infinity | bit;
        break;
      case 2:
        x = infinity | bit | static_cast<Bits>(1 + small);
        break;
      case 3:
        x = infinity | bit | Bits{1} << (mantissa - 1) | small;
        break;
      default:
        x = any;
    }
  }
  return all;
}

template <class Bits>
void expect_the_same_alone_and_among_others(DType type, int mantissa) {
  std::mt19937_64 random(1);
  for (const RedOp op : kAllRedOps) {
    if (!defined(op, type)) continue;
    const auto o = static_cast<std::size_t>(op), t = static_cast<std::size_t>(type);
    for (const int n : {2, 3, 5, 8, 9, 20})
      for (const std::size_t count : {1u, 7u, 63u, 1500u}) {
        std::vector<std::vector<Bits>> sources;
        std::vector<const void*> from(static_cast<std::size_t>(n));
        for (int k = 0; k < n; ++k) sources.push_back(values<Bits>(count, mantissa, random));
        std::vector<Bits> alone(count);
        for (std::size_t i = 0; i < count; ++i) {
          for (std::size_t k = 0; k < from.size(); ++k) from[k] = &sources[k][i];
          kernels_base.reduce[t][o](&alone[i], from.data(), n, 1);
        }
        for (std::size_t k = 0; k < from.size(); ++k) from[k] = sources[k].data();
        for (const KernelTable* table : tables()) {
          std::vector<Bits> all(count);
          table->reduce[t][o](all.data(), from.data(), n, count);
          ASSERT_EQ(all, alone) << fmt::format("{} {} of {} sources, {} elements, {}", name(type),
                                               name(op), n, count, table->isa);
        }
      }
  }
}

TEST(Kernels, GiveTheSameBitsAloneAndAmongOthersOnEveryProcessor) {
  expect_the_same_alone_and_among_others<std::uint32_t>(DType::kFloat32, 23);
  expect_the_same_alone_and_among_others<std::uint64_t>(DType::kFloat64, 52);
  expect_the_same_alone_and_among_others<std::uint16_t>(DType::kFloat16, 10);
  expect_the_same_alone_and_among_others<std::uint16_t>(DType::kBFloat16, 7);
}

// Between 1 and the value with only the highest bit set, signedness decides which is less.
template <class T>
void expect_order_by_sign(DType type) {
  const T high = static_cast<T>(std::uint64_t{1} << (8 * sizeof(T) - 1));
  const std::vector<T> one(100, T{1}), other(100, high);
  const void* const from[] = {one.data(), other.data()};
  for (const KernelTable* table : tables())
    for (const RedOp op : {RedOp::kMin, RedOp::kMax}) {
      std::vector<T> to(one.size());
      table->reduce[static_cast<std::size_t>(type)][static_cast<std::size_t>(op)](to.data(), from,
                                                                                  2, to.size());
      const T right = op == RedOp::kMin ? std::min(T{1}, high) : std::max(T{1}, high);
      EXPECT_EQ(to, std::vector<T>(to.size(), right)) << name(type) << name(op) << table->isa;
    }
}

TEST(Kernels, KnowWhichIntegersHaveASign) {
  expect_order_by_sign<std::int8_t>(DType::kInt8);
  expect_order_by_sign<std::uint8_t>(DType::kUInt8);
  expect_order_by_sign<std::int16_t>(DType::kInt16);
  expect_order_by_sign<std::uint16_t>(DType::kUInt16);
  expect_order_by_sign<std::int32_t>(DType::kInt32);
  expect_order_by_sign<std::uint32_t>(DType::kUInt32);
  expect_order_by_sign<std::int64_t>(DType::kInt64);
  expect_order_by_sign<std::uint64_t>(DType::kUInt64);
}

constexpr std::size_t kOddCount = 21;  // some full vectors and a remainder

// At an odd address: UBSan (dev) detects misaligned access, which x86 permits.
struct Odd {
  explicit Odd(std::uint16_t value) : bytes(1 + 2 * kOddCount) {
    for (std::size_t i = 0; i < kOddCount; ++i) std::memcpy(at() + 2 * i, &value, sizeof value);
  }
  std::byte* at() { return bytes.data() + 1; }
  std::uint16_t operator[](std::size_t i) {
    std::uint16_t value;
    std::memcpy(&value, at() + 2 * i, sizeof value);
    return value;
  }
  std::vector<std::byte> bytes;
};

TEST(Kernels, HalvesMayLieAtOddAddresses) {
  struct {
    DType type;
    std::uint16_t one, two, half;
  } const formats[] = {{DType::kFloat16, 0x3c00, 0x4000, 0x3800},
                       {DType::kBFloat16, 0x3f80, 0x4000, 0x3f00}};
  for (const auto& f : formats) {
    Odd a(f.one), b(f.one), to(0);
    const void* const sources[] = {a.at(), b.at()};
    reduce_kernel(f.type, RedOp::kSum)(to.at(), sources, 2, kOddCount);
    for (std::size_t i = 0; i < kOddCount; ++i) EXPECT_EQ(to[i], f.two) << name(f.type) << i;
    scale(to.at(), a.at(), f.type, 2, kOddCount);
    for (std::size_t i = 0; i < kOddCount; ++i) EXPECT_EQ(to[i], f.half) << name(f.type) << i;
    multiply(to.at(), a.at(), f.type, 2, kOddCount);
    for (std::size_t i = 0; i < kOddCount; ++i) EXPECT_EQ(to[i], f.two) << name(f.type) << i;
  }
}

// Every byte by every divisor: bytes have a separate division algorithm.
template <class T>
void divides_every_byte(DType type) {
  T in[256], out[256];
  for (int i = 0; i < 256; ++i) in[i] = static_cast<T>(i + std::numeric_limits<T>::min());
  for (int n = 1; n <= 300; ++n) {
    scale(out, in, type, n, 256);
    for (int i = 0; i < 256; ++i) ASSERT_EQ(out[i], in[i] / n) << int{in[i]} << " / " << n;
  }
}

TEST(Kernels, BytesAreDividedTowardsZero) {
  divides_every_byte<std::int8_t>(DType::kInt8);
  divides_every_byte<std::uint8_t>(DType::kUInt8);
}

}  // namespace
}  // namespace weft
