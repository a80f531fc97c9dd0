// The body of the reduction kernel, for both the GPU and the processor: thread `thread` of
// `threads` does its share. The trainer also uses the element codecs (train/device/kernel.h).
//
//   | head, by elements | vectors of 16 bytes, kUnroll per thread and turn | tail, by elements |
//
// The kernel takes this path if all operands have the same distance to a 16-byte boundary.
// Otherwise it accesses single elements, byte by byte for operands that are misaligned for their
// own type.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <type_traits>

#include "coll/gpu/kernels.h"

#ifdef __CUDACC__
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#define WEFT_HD __host__ __device__ __forceinline__
#else
#define WEFT_HD inline
#endif
#ifdef __CUDA_ARCH__  // not defined in the host pass
#define WEFT_UNROLL _Pragma("unroll")
#else
#define WEFT_UNROLL
#endif

namespace weft::device_arithmetic {

struct alignas(16) Vector {
  std::uint32_t word[4];
};
inline constexpr std::size_t kVector = sizeof(Vector);

// Loads a vector from a multiple of 16 bytes; the memory may be of any type. A GPU does it in one
// access. The host copies: its compiler might move an access through Vector before its test.
WEFT_HD Vector load_vector(const void* p) {
#ifdef __CUDA_ARCH__
  return *static_cast<const Vector*>(p);
#else
  Vector v;
  memcpy(&v, p, sizeof v);
  return v;
#endif
}
WEFT_HD void store_vector(void* p, const Vector& v) {
#ifdef __CUDA_ARCH__
  *static_cast<Vector*>(p) = v;
#else
  memcpy(p, &v, sizeof v);
#endif
}
inline constexpr int kUnroll = 4;  // vectors of one source that a thread loads at once

template <class To, class From>
WEFT_HD To bits(From from) {
  static_assert(sizeof(To) == sizeof(From));
  To to;
  memcpy(&to, &from, sizeof to);
  return to;
}

// ---- elements ------------------------------------------------------------------------------

// An element: Stored in memory, Value for arithmetic, Signed for quotients.
template <class T, class Quotient = T>
struct Plain {
  using Stored = T;
  using Value = T;
  using Signed = Quotient;
  static WEFT_HD Value widen(Stored s) { return s; }
  static WEFT_HD Stored narrow(Value v) { return v; }
};

struct Half {
  using Stored = std::uint16_t;
  using Value = float;
  static WEFT_HD Value widen(Stored h) {
#ifdef __CUDA_ARCH__
    return __half2float(__ushort_as_half(h));
#else
    const std::uint32_t sign = (h & 0x8000u) << 16, exponent = (h >> 10) & 31, mantissa = h & 0x3ff;
    if (exponent == 31) return bits<float>(sign | 0x7f800000u | (mantissa << 13));
    if (exponent == 0) {  // subnormal or zero: mantissa * 2^-24, exact
      const float f = static_cast<float>(mantissa) * 0x1p-24f;
      return sign ? -f : f;
    }
    return bits<float>(sign | ((exponent + 112) << 23) | (mantissa << 13));
#endif
  }
  static WEFT_HD Stored narrow(Value f) {  // to nearest, ties to even
#ifdef __CUDA_ARCH__
    return __half_as_ushort(__float2half_rn(f));
#else
    const auto b = bits<std::uint32_t>(f);
    const std::uint32_t sign = (b >> 16) & 0x8000u, magnitude = b & 0x7fffffffu;
    if (magnitude > 0x7f800000u) return static_cast<Stored>(sign | 0x7e00u);
    if (magnitude >= 0x477ff000u) return static_cast<Stored>(sign | 0x7c00u);
    if (magnitude < 0x38800000u) {  // subnormal: let the addition round at the right place
      const float shifted = bits<float>(magnitude) + 0.5f;
      return static_cast<Stored>(sign | (bits<std::uint32_t>(shifted) - 0x3f000000u));
    }
    const std::uint32_t odd = (magnitude >> 13) & 1;
    return static_cast<Stored>(sign | ((magnitude - 0x38000000u + 0xfffu + odd) >> 13));
#endif
  }
};

struct BFloat {
  using Stored = std::uint16_t;
  using Value = float;
  static WEFT_HD Value widen(Stored h) { return bits<float>(static_cast<std::uint32_t>(h) << 16); }
  static WEFT_HD Stored narrow(Value f) {
    const auto b = bits<std::uint32_t>(f);
    const std::uint32_t rounded = (b + 0x7fffu + ((b >> 16) & 1)) >> 16;
    const std::uint32_t nan = (b >> 16) | 0x40u;
    return static_cast<Stored>((b & 0x7fffffffu) > 0x7f800000u ? nan : rounded);
  }
};

// ---- operators -----------------------------------------------------------------------------

// Operators add and multiply signed integers as unsigned integers, which wrap around.
struct Sum {
  template <class T>
  static WEFT_HD T apply(T a, T b) {
    return static_cast<T>(a + b);
  }
};
struct ScaledSum : Sum {};  // of the values times their sources' factors
struct Prod {
  template <class T>
  static WEFT_HD T apply(T a, T b) {
    if constexpr (std::is_integral_v<T>) {
      return static_cast<T>(1u * a * b);  // short types must not become int, which may overflow
    } else {
      return a * b;
    }
  }
};
struct Min {
  template <class T>
  static WEFT_HD T apply(T a, T b) {
    return b < a ? b : a;
  }
};
struct Max {
  template <class T>
  static WEFT_HD T apply(T a, T b) {
    return a < b ? b : a;
  }
};
struct And {
  template <class T>
  static WEFT_HD T apply(T a, T b) {
    return static_cast<T>(a & b);
  }
};
struct Or {
  template <class T>
  static WEFT_HD T apply(T a, T b) {
    return static_cast<T>(a | b);
  }
};
struct Xor {
  template <class T>
  static WEFT_HD T apply(T a, T b) {
    return static_cast<T>(a ^ b);
  }
};

// Returns a source's element, times its factor if the operator has one, rounded as if stored.
template <class E, class Fn>
WEFT_HD typename E::Value input(typename E::Stored s, double factor) {
  if constexpr (!std::is_same_v<Fn, ScaledSum>) {
    return E::widen(s);
  } else if constexpr (std::is_floating_point_v<typename E::Value>) {
    return E::widen(E::narrow(E::widen(s) * static_cast<typename E::Value>(factor)));
  } else {
    // Modulo 2^64, a multiple of the type's own modulus.
    const auto f = factor < 0 ? static_cast<std::uint64_t>(static_cast<std::int64_t>(factor))
                              : static_cast<std::uint64_t>(factor);
    return static_cast<typename E::Value>(static_cast<std::uint64_t>(s) * f);
  }
}

// Divides the stored sum, so that an average is the sum of the same call, divided. Sums of signed
// integers are computed as unsigned; E::Signed restores the sign.
template <class E>
WEFT_HD typename E::Stored divided(typename E::Stored sum, int divisor) {
  if constexpr (std::is_floating_point_v<typename E::Value>) {
    return E::narrow(E::widen(sum) / static_cast<typename E::Value>(divisor));
  } else {
    // In 64 bits: there may be more ranks than the type can count.
    using T = typename E::Signed;
    using Wide = std::conditional_t<std::is_signed_v<T>, std::int64_t, std::uint64_t>;
    return static_cast<typename E::Stored>(static_cast<Wide>(static_cast<T>(sum)) /
                                           static_cast<Wide>(divisor));
  }
}

// ---- one element ---------------------------------------------------------------------------

template <class S>
WEFT_HD S load(const std::byte* at) {
  if (reinterpret_cast<std::uintptr_t>(at) % sizeof(S) == 0) return *reinterpret_cast<const S*>(at);
  unsigned char raw[sizeof(S)];
  for (std::size_t i = 0; i < sizeof(S); ++i) raw[i] = static_cast<unsigned char>(at[i]);
  S s;
  memcpy(&s, raw, sizeof s);
  return s;
}

template <class S>
WEFT_HD void store(std::byte* at, S s) {
  if (reinterpret_cast<std::uintptr_t>(at) % sizeof(S) == 0) {
    *reinterpret_cast<S*>(at) = s;
    return;
  }
  unsigned char raw[sizeof(S)];
  memcpy(raw, &s, sizeof s);
  for (std::size_t i = 0; i < sizeof(S); ++i) at[i] = static_cast<std::byte>(raw[i]);
}

template <class E, class Fn>
WEFT_HD void one(const DeviceReduce& r, std::size_t i) {
  using S = typename E::Stored;
  const std::size_t at = i * sizeof(S);
  const auto fetch = [&](int k) {
    return input<E, Fn>(load<S>(static_cast<const std::byte*>(r.srcs[k]) + at), r.factors[k]);
  };
  typename E::Value value = fetch(0);
  for (int k = 1; k < r.nsrcs; ++k) value = Fn::template apply<typename E::Value>(value, fetch(k));
  S result = E::narrow(value);
  if (r.divisor != 1) result = divided<E>(result, r.divisor);
  for (int d = 0; d < r.ndsts; ++d) store(static_cast<std::byte*>(r.dsts[d]) + at, result);
}

// ---- vectors -------------------------------------------------------------------------------

// Reduces kVectors vectors, `stride` bytes apart, from byte `at` on.
template <class E, class Fn, int kVectors>
WEFT_HD void vectors(const DeviceReduce& r, std::size_t at, std::size_t stride) {
  using S = typename E::Stored;
  constexpr int kElements = static_cast<int>(kVector / sizeof(S));
  typename E::Value value[kVectors][kElements];
  const auto fetch = [&](int k, const auto& use) {
    const auto* from = static_cast<const std::byte*>(r.srcs[k]) + at;
    Vector in[kVectors];
    WEFT_UNROLL
    for (int v = 0; v < kVectors; ++v)
      in[v] = load_vector(from + static_cast<std::size_t>(v) * stride);
    WEFT_UNROLL
    for (int v = 0; v < kVectors; ++v) {
      S element[kElements];
      memcpy(element, &in[v], sizeof element);
      for (int e = 0; e < kElements; ++e) use(value[v][e], input<E, Fn>(element[e], r.factors[k]));
    }
  };
  using V = typename E::Value;
  fetch(0, [](V& sum, V next) { sum = next; });
  for (int k = 1; k < r.nsrcs; ++k)
    fetch(k, [](V& sum, V next) { sum = Fn::template apply<V>(sum, next); });
  Vector out[kVectors];
  for (int v = 0; v < kVectors; ++v) {
    S element[kElements];
    for (int e = 0; e < kElements; ++e) {
      element[e] = E::narrow(value[v][e]);
      if (r.divisor != 1) element[e] = divided<E>(element[e], r.divisor);
    }
    memcpy(&out[v], element, sizeof element);
  }
  for (int d = 0; d < r.ndsts; ++d) {
    auto* to = static_cast<std::byte*>(r.dsts[d]) + at;
    for (int v = 0; v < kVectors; ++v)
      store_vector(to + static_cast<std::size_t>(v) * stride, out[v]);
  }
}

// Returns how far all operands are from a 16-byte boundary; -1 if the operands differ.
inline int common_misalignment(const DeviceReduce& r) {
  const auto of = [](const void* p) {
    return static_cast<int>(reinterpret_cast<std::uintptr_t>(p) % kVector);
  };
  const int first = of(r.srcs[0]);
  for (int k = 1; k < r.nsrcs; ++k)
    if (of(r.srcs[k]) != first) return -1;
  for (int d = 0; d < r.ndsts; ++d)
    if (of(r.dsts[d]) != first) return -1;
  return first;
}

// The split of a launch, computed once: elements before the vectors, and number of vectors.
struct Split {
  std::size_t head, nvectors;
};
inline Split split(const DeviceReduce& r) {
  const std::size_t size = size_of(r.type);
  const int off = common_misalignment(r);
  if (off < 0 || static_cast<std::size_t>(off) % size != 0) return {r.count, 0};
  const std::size_t head = off == 0 ? 0 : (kVector - static_cast<std::size_t>(off)) / size;
  if (head >= r.count) return {r.count, 0};
  return {head, (r.count - head) * size / kVector};
}

template <class E, class Fn>
WEFT_HD void body(const DeviceReduce& r, const Split& s, std::size_t thread, std::size_t threads) {
  using S = typename E::Stored;
  const std::size_t start = s.head * sizeof(S), turn = threads * kUnroll;
  std::size_t v = 0;
  for (; v + turn <= s.nvectors; v += turn)
    vectors<E, Fn, kUnroll>(r, start + (v + thread) * kVector, threads * kVector);
  for (v += thread; v < s.nvectors; v += threads)
    vectors<E, Fn, 1>(r, start + v * kVector, kVector);
  for (std::size_t i = thread; i < s.head; i += threads) one<E, Fn>(r, i);
  const std::size_t done = s.head + s.nvectors * kVector / sizeof(S);
  for (std::size_t i = done + thread; i < r.count; i += threads) one<E, Fn>(r, i);
}

// ---- by type and operator ------------------------------------------------------------------

// with_kernel() and its parts call visit.template operator()<Element, Operator>(). kAvg is a sum
// with a divisor.
template <class E, class Visit>
void with_float(RedOp op, const Visit& visit) {
  switch (op) {
    case RedOp::kMin:
      return visit.template operator()<E, Min>();
    case RedOp::kMax:
      return visit.template operator()<E, Max>();
    case RedOp::kProd:
      return visit.template operator()<E, Prod>();
    case RedOp::kPreMulSum:
      return visit.template operator()<E, ScaledSum>();
    default:
      return visit.template operator()<E, Sum>();
  }
}

template <class T, class U, class Visit>
void with_integer(RedOp op, const Visit& visit) {
  switch (op) {
    case RedOp::kMin:
      return visit.template operator()<Plain<T>, Min>();
    case RedOp::kMax:
      return visit.template operator()<Plain<T>, Max>();
    case RedOp::kProd:
      return visit.template operator()<Plain<U>, Prod>();
    case RedOp::kPreMulSum:
      return visit.template operator()<Plain<U>, ScaledSum>();
    case RedOp::kBitAnd:
      return visit.template operator()<Plain<U>, And>();
    case RedOp::kBitOr:
      return visit.template operator()<Plain<U>, Or>();
    case RedOp::kBitXor:
      return visit.template operator()<Plain<U>, Xor>();
    default:
      return visit.template operator()<Plain<U, T>, Sum>();
  }
}

template <class Visit>
void with_kernel(DType type, RedOp op, const Visit& visit) {
  switch (type) {
    case DType::kFloat32:
      return with_float<Plain<float>>(op, visit);
    case DType::kFloat64:
      return with_float<Plain<double>>(op, visit);
    case DType::kFloat16:
      return with_float<Half>(op, visit);
    case DType::kBFloat16:
      return with_float<BFloat>(op, visit);
    case DType::kInt8:
      return with_integer<std::int8_t, std::uint8_t>(op, visit);
    case DType::kUInt8:
      return with_integer<std::uint8_t, std::uint8_t>(op, visit);
    case DType::kInt16:
      return with_integer<std::int16_t, std::uint16_t>(op, visit);
    case DType::kUInt16:
      return with_integer<std::uint16_t, std::uint16_t>(op, visit);
    case DType::kInt32:
      return with_integer<std::int32_t, std::uint32_t>(op, visit);
    case DType::kUInt32:
      return with_integer<std::uint32_t, std::uint32_t>(op, visit);
    case DType::kInt64:
      return with_integer<std::int64_t, std::uint64_t>(op, visit);
    case DType::kUInt64:
      return with_integer<std::uint64_t, std::uint64_t>(op, visit);
    case DType::kBool:  // its sum is "or", its product "and"
      op = op == RedOp::kSum ? RedOp::kMax : op == RedOp::kProd ? RedOp::kMin : op;
      return with_integer<std::uint8_t, std::uint8_t>(op, visit);
  }
}

}  // namespace weft::device_arithmetic
