// Makes and compares test payloads in every type. Does not depend on collectives' schedules.
#include "perf/collective/payload.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>

#include "topo/base/random.h"

namespace weft {
namespace {

// Returns the largest n such that all integers up to n are exact in the type.
std::int64_t exact_limit(DType type) {
  switch (type) {
    case DType::kFloat16:
      return 1 << 11;
    case DType::kBFloat16:
      return 1 << 8;
    case DType::kFloat32:
      return 1 << 24;
    case DType::kInt32:
    case DType::kUInt32:
      return 1 << 30;
    case DType::kFloat64:
    case DType::kInt64:
    case DType::kUInt64:
      return std::int64_t{1} << 40;
    case DType::kInt8:
      return 127;
    case DType::kUInt8:
      return 255;
    case DType::kInt16:
      return 32767;
    case DType::kUInt16:
      return 65535;
    case DType::kBool:
      return 1;
  }
  return 1;
}

// Converts an integer that is exact in half precision (|x| <= 2048), so no rounding is needed.
std::uint16_t half_bits(double x) {
  if (x == 0) return 0;
  const int exponent = std::ilogb(x);
  const double mantissa = std::ldexp(std::fabs(x), 10 - exponent);  // in [1024, 2048)
  return static_cast<std::uint16_t>((x < 0 ? 0x8000 : 0) | ((exponent + 15) << 10) |
                                    (static_cast<int>(mantissa) & 0x3ff));
}

double half_value(std::uint16_t bits) {
  const int exponent = (bits >> 10) & 31, mantissa = bits & 0x3ff;
  const double sign = bits & 0x8000 ? -1 : 1;
  if (exponent == 31) return mantissa ? NAN : sign * INFINITY;
  if (exponent == 0) return sign * std::ldexp(mantissa, -24);
  return sign * std::ldexp(1024 + mantissa, exponent - 25);
}

bool has_sign(DType type) {
  return is_floating(type) || type == DType::kInt8 || type == DType::kInt16 ||
         type == DType::kInt32 || type == DType::kInt64;
}

void store(DType type, unsigned char* at, double x) {
  const auto put = [at](auto v) { std::memcpy(at, &v, sizeof v); };
  switch (type) {
    case DType::kFloat32:
      return put(static_cast<float>(x));
    case DType::kFloat64:
      return put(x);
    case DType::kInt32:
      return put(static_cast<std::int32_t>(x));
    case DType::kInt64:
      return put(static_cast<std::int64_t>(x));
    case DType::kInt8:
      return put(static_cast<std::int8_t>(x));
    case DType::kUInt8:
    case DType::kBool:
      return put(static_cast<std::uint8_t>(x));
    case DType::kInt16:
      return put(static_cast<std::int16_t>(x));
    case DType::kUInt16:
      return put(static_cast<std::uint16_t>(x));
    case DType::kUInt32:
      return put(static_cast<std::uint32_t>(x));
    case DType::kUInt64:
      return put(static_cast<std::uint64_t>(x));
    case DType::kFloat16:
      return put(half_bits(x));
    case DType::kBFloat16:
      return put(
          static_cast<std::uint16_t>(std::bit_cast<std::uint32_t>(static_cast<float>(x)) >> 16));
  }
}

double load(DType type, const unsigned char* at) {
  const auto get = [at]<class T>(T v) {
    std::memcpy(&v, at, sizeof v);
    return v;
  };
  switch (type) {
    case DType::kFloat32:
      return get(float{});
    case DType::kFloat64:
      return get(double{});
    case DType::kInt32:
      return get(std::int32_t{});
    case DType::kInt64:
      return static_cast<double>(get(std::int64_t{}));
    case DType::kInt8:
      return get(std::int8_t{});
    case DType::kUInt8:
    case DType::kBool:
      return get(std::uint8_t{});
    case DType::kInt16:
      return get(std::int16_t{});
    case DType::kUInt16:
      return get(std::uint16_t{});
    case DType::kUInt32:
      return get(std::uint32_t{});
    case DType::kUInt64:
      return static_cast<double>(get(std::uint64_t{}));
    case DType::kFloat16:
      return half_value(get(std::uint16_t{}));
    case DType::kBFloat16:
      return std::bit_cast<float>(static_cast<std::uint32_t>(get(std::uint16_t{})) << 16);
  }
  return 0;
}

}  // namespace

// Every partial result must be an exact integer of the type: contributors * range * unit <= limit.
// An average must be exact whether the division is done before or after the sum, so its values are
// multiples of the number of ranks. If the type's range is too small for all ranks, different ranks
// contribute to different elements. A product consists of ones and a few factors of two.
Payload::Payload(DType type, RedOp op, int nranks) : type_(type), op_(op), nranks_(nranks) {
  const std::int64_t limit = exact_limit(type);
  unit_ = op == RedOp::kAvg ? nranks : 1;
  const std::int64_t grows = op == RedOp::kPreMulSum ? static_cast<std::int64_t>(kFactor) : 1;
  const std::int64_t room = limit / static_cast<std::int64_t>(unit_) / grows;
  if (type == DType::kBool) {
    contributors_ = nranks;
    range_ = 1;
  } else if (op == RedOp::kProd) {
    neutral_ = 1;
    contributors_ =
        std::min(nranks, static_cast<int>(std::bit_width(static_cast<std::uint64_t>(limit))) - 1);
  } else if (op == RedOp::kMin || op == RedOp::kMax || is_bitwise(op)) {
    contributors_ = nranks;
    range_ = static_cast<int>(std::min<std::int64_t>(limit, 1 << 12));
  } else if (room >= 1) {
    const std::int64_t preferred = size_of(type) == 1         ? 8
                                   : type == DType::kBFloat16 ? 4
                                   : size_of(type) == 2       ? 32
                                                              : 4096;
    contributors_ = static_cast<int>(std::clamp<std::int64_t>(
        room / preferred, std::min<std::int64_t>({room, 2, nranks}), nranks));
    range_ = static_cast<int>(std::clamp<std::int64_t>(room / contributors_, 1, preferred));
  }
}

double Payload::value(int rank, std::uint64_t index) const {
  const std::uint64_t i = index % kPeriod;
  if (contributors_ < nranks_) {
    const auto turn = (static_cast<std::uint64_t>(rank) + i * contributors_) % nranks_;
    if (turn >= static_cast<std::uint64_t>(contributors_)) return neutral_;
  }
  const std::uint64_t h = splitmix64(i * 0x10001 + static_cast<std::uint64_t>(rank) * 0x9e3779b1);
  if (op_ == RedOp::kProd && type_ != DType::kBool)  // 1 and 2, also -1 and -2 if signed
    return static_cast<double>(h % 2 + 1) * (has_sign(type_) && h % 3 == 0 ? -1 : 1);
  if (!has_sign(type_)) return static_cast<double>(h % (range_ + 1)) * unit_;
  return (static_cast<double>(h % (2 * range_ + 1)) - range_) * unit_;
}

double Payload::reduced(std::uint64_t index) const {
  const double factor = op_ == RedOp::kPreMulSum ? kFactor : 1;
  double x = value(0, index) * factor;
  for (int r = 1; r < nranks_; ++r) x = combine(x, value(r, index) * factor);
  return op_ == RedOp::kAvg ? x / nranks_ : x;
}

double Payload::combine(double x, double y) const {
  const auto a = static_cast<std::int64_t>(x), b = static_cast<std::int64_t>(y);
  switch (op_) {
    case RedOp::kMin:
      return std::min(x, y);
    case RedOp::kMax:
      return std::max(x, y);
    case RedOp::kProd:
      return x * y;
    case RedOp::kBitAnd:
      return static_cast<double>(a & b);
    case RedOp::kBitOr:
      return static_cast<double>(a | b);
    case RedOp::kBitXor:
      return static_cast<double>(a ^ b);
    default:
      return type_ == DType::kBool ? std::max(x, y) : x + y;
  }
}

std::vector<unsigned char> Payload::window(int rank, std::size_t count, std::uint64_t first) const {
  const std::size_t size = size_of(type_);
  std::vector<unsigned char> bytes(std::min(count, kPeriod) * size);
  for (std::size_t i = 0; i * size < bytes.size(); ++i)
    store(type_, &bytes[i * size], rank == kReduced ? reduced(first + i) : value(rank, first + i));
  return bytes;
}

void Payload::fill(void* data, std::size_t count, int rank, std::uint64_t first) const {
  const auto bytes = window(rank, count, first);
  const std::size_t size = size_of(type_);
  for (std::size_t i = 0; i < count; i += kPeriod)
    std::memcpy(static_cast<unsigned char*>(data) + i * size, bytes.data(),
                std::min(kPeriod, count - i) * size);
}

Mismatch Payload::compare(const void* data, std::size_t count, int rank,
                          std::uint64_t first) const {
  return compare_with(rank, data, count, first);
}

Mismatch Payload::compare_reduced(const void* data, std::size_t count, std::uint64_t first) const {
  return compare_with(kReduced, data, count, first);
}

Mismatch Payload::compare_with(int rank, const void* data, std::size_t count,
                               std::uint64_t first) const {
  const auto bytes = window(rank, count, first);
  const std::size_t size = size_of(type_);
  const auto* at = static_cast<const unsigned char*>(data);
  Mismatch mismatch;
  for (std::size_t i = 0; i < count; i += kPeriod) {
    const std::size_t n = std::min(kPeriod, count - i);
    if (std::memcmp(at + i * size, bytes.data(), n * size) == 0) continue;
    for (std::size_t k = 0; k < n; ++k) {
      const unsigned char* got = at + (i + k) * size;
      const unsigned char* want = &bytes[k * size];
      if (std::memcmp(got, want, size) == 0) continue;
      if (std::abs(load(type_, got) - load(type_, want)) <= tolerance_) continue;
      if (mismatch.wrong++ == 0)
        mismatch.first = fmt::format("element {} is {:.17g}, expected {:.17g}", i + k,
                                     load(type_, got), load(type_, want));
    }
  }
  return mismatch;
}

}  // namespace weft
