// Payloads whose reductions are exact in every type, and the reference, computed without weft.
#pragma once

#include <bit>
#include <cstdint>
#include <cstring>
#include <vector>

#include "coll/types.h"

namespace weft::testing {

// Small integers: sums over 40 ranks stay exact even in bfloat16 (8 bits).
inline int value(int rank, std::size_t i) {
  return static_cast<int>((i * 7 + i / 13 + static_cast<std::size_t>(rank) * 3) % 5) + 1;
}

inline std::uint16_t to_bf16(float f) {
  return static_cast<std::uint16_t>(std::bit_cast<std::uint32_t>(f) >> 16);
}
inline std::uint16_t to_fp16(float f) {  // exact for integers up to 2048 and their halves
  const auto bits = std::bit_cast<std::uint32_t>(f);
  if ((bits & 0x7fffffff) == 0) return 0;
  const int exponent = static_cast<int>((bits >> 23) & 255) - 127 + 15;
  return static_cast<std::uint16_t>((bits >> 16 & 0x8000) | static_cast<unsigned>(exponent) << 10 |
                                    ((bits >> 13) & 0x3ff));
}

inline void put(void* at, std::size_t i, DType type, double v) {
  auto* p = static_cast<std::byte*>(at) + i * size_of(type);
  const auto store = [p](auto x) { std::memcpy(p, &x, sizeof x); };
  const auto whole = static_cast<std::int64_t>(v);  // shorter integers wrap around
  switch (type) {
    case DType::kFloat32:
      return store(static_cast<float>(v));
    case DType::kFloat64:
      return store(v);
    case DType::kInt32:
      return store(static_cast<std::int32_t>(whole));
    case DType::kInt64:
      return store(static_cast<std::int64_t>(whole));
    case DType::kInt8:
      return store(static_cast<std::int8_t>(whole));
    case DType::kUInt8:
      return store(static_cast<std::uint8_t>(whole));
    case DType::kInt16:
      return store(static_cast<std::int16_t>(whole));
    case DType::kUInt16:
      return store(static_cast<std::uint16_t>(whole));
    case DType::kUInt32:
      return store(static_cast<std::uint32_t>(whole));
    case DType::kUInt64:
      return store(static_cast<std::uint64_t>(whole));
    case DType::kBool:
      return store(static_cast<std::uint8_t>(v != 0));
    case DType::kFloat16:
      return store(to_fp16(static_cast<float>(v)));
    case DType::kBFloat16:
      return store(to_bf16(static_cast<float>(v)));
  }
}

// A rank's operand of a reduction by `op`. Most factors of a product are 1, and most bools are
// true, so that results stay exact and differ.
inline int operand(int rank, std::size_t i, DType type, RedOp op) {
  if (type == DType::kBool) return (i + static_cast<std::size_t>(rank) * 3) % 7 == 0 ? 0 : 1;
  if (op != RedOp::kProd) return value(rank, i);
  return (static_cast<std::size_t>(rank) + i) % 8 < 2 ? 2 - static_cast<int>(i % 2) : 1;
}

// The reduction of element i over n ranks. An average may be fractional and is then inexact: for
// avg on floating types, callers use an n that is a power of two.
inline double reduced(int n, std::size_t i, DType type, RedOp op) {
  double sum = 0, low = 1e9, high = -1e9, product = 1;
  long long all = -1, any = 0, odd = 0;
  for (int r = 0; r < n; ++r) {
    const int v = operand(r, i, type, op);
    sum += v;
    product *= v;
    low = v < low ? v : low;
    high = v > high ? v : high;
    all &= v;
    any |= v;
    odd ^= v;
  }
  switch (op) {
    case RedOp::kSum:
      return type == DType::kBool ? high : sum;
    case RedOp::kProd:
      return product;
    case RedOp::kMin:
      return low;
    case RedOp::kMax:
      return high;
    case RedOp::kAvg: {
      if (is_floating(type)) return sum / n;
      const auto whole = static_cast<std::int64_t>(sum);  // the type keeps its low bits
      if (type == DType::kInt8) return static_cast<std::int8_t>(whole) / n;
      if (type == DType::kUInt8) return static_cast<std::uint8_t>(whole) / n;
      return static_cast<double>(whole / n);
    }
    case RedOp::kBitAnd:
      return static_cast<double>(all);
    case RedOp::kBitOr:
      return static_cast<double>(any);
    case RedOp::kBitXor:
      return static_cast<double>(odd);
    case RedOp::kPreMulSum:
      return 2 * sum;  // callers pass a factor of 2
  }
  return 0;
}

}  // namespace weft::testing
