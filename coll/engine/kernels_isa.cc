// The reduction loops, written plainly so that the compiler vectorizes them. CMake compiles this
// file once per instruction set (WEFT_ISA = base, avx2, avx512); kernels.cc chooses at run time.
#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <limits>
#include <type_traits>
#ifdef __F16C__
#include <immintrin.h>
#endif

#include "coll/engine/kernels_table.h"

#ifndef WEFT_ISA
#define WEFT_ISA base
#endif
#define WEFT_CAT2(a, b) a##b
#define WEFT_CAT(a, b) WEFT_CAT2(a, b)
#define WEFT_STR2(a) #a
#define WEFT_STR(a) WEFT_STR2(a)

namespace weft {
namespace {

constexpr std::size_t kBlock = 1024;  // elements kept in L1 if several passes are needed

struct Sum {
  template <class T>
  static T apply(T a, T b) {
    return static_cast<T>(a + b);  // integers are unsigned here: they wrap around
  }
};
struct Prod {
  template <class T>
  static T apply(T a, T b) {
    if constexpr (std::is_integral_v<T>) {
      return static_cast<T>(1u * a * b);  // 1u: short types would become int, which may overflow
    } else {
      return a * b;
    }
  }
};
struct Min {
  template <class T>
  static T apply(T a, T b) {
    return b < a ? b : a;
  }
};
struct Max {
  template <class T>
  static T apply(T a, T b) {
    return a < b ? b : a;
  }
};
struct And {
  template <class T>
  static T apply(T a, T b) {
    return static_cast<T>(a & b);
  }
};
struct Or {
  template <class T>
  static T apply(T a, T b) {
    return static_cast<T>(a | b);
  }
};
struct Xor {
  template <class T>
  static T apply(T a, T b) {
    return static_cast<T>(a ^ b);
  }
};

// Sources per pass: many where speed matters most, few elsewhere, to limit the code's size.
template <class T, class Fn>
constexpr int kUnroll = std::is_same_v<Fn, Sum> && sizeof(T) >= 4 ? 8 : 4;

// The user's pointers may be unaligned, and may alias other types.
template <class T>
struct Loose {
  typedef T type __attribute__((aligned(1), may_alias));
};
using Bits16 = Loose<std::uint16_t>::type;

// K sources in one pass. dst may be among the sources: each element is read before it is written.
template <class T, class Fn, int K>
void reduce_k(T* to, const T* const* srcs, std::size_t count) {
  using U = typename Loose<T>::type;
  U* dst = to;
  const U* s[K];
  for (int k = 0; k < K; ++k) s[k] = srcs[k];
#pragma GCC ivdep
  for (std::size_t i = 0; i < count; ++i) {
    T a = s[0][i];
    for (int k = 1; k < K; ++k) a = Fn::template apply<T>(a, s[k][i]);
    // Of two NaNs the processor returns the first operand, and the compiler chooses that one.
    if constexpr (std::is_floating_point_v<T>)
      if (a != a) a = std::numeric_limits<T>::quiet_NaN();
    dst[i] = a;
  }
}

template <class T, class Fn, int K = kUnroll<T, Fn>>
void reduce_few(T* dst, const T* const* srcs, int n, std::size_t count) {
  if constexpr (K == 1) {
    if (dst != srcs[0]) std::memcpy(dst, srcs[0], count * sizeof(T));
  } else {
    if (n == K) return reduce_k<T, Fn, K>(dst, srcs, count);
    reduce_few<T, Fn, K - 1>(dst, srcs, n, count);
  }
}

template <class T, class Fn>
void reduce(void* dst_v, const void* const* srcs_v, int n, std::size_t count) {
  constexpr int kFew = kUnroll<T, Fn>;
  T* dst = static_cast<T*>(dst_v);
  const T* const* srcs = reinterpret_cast<const T* const*>(srcs_v);
  if (n <= kFew) return reduce_few<T, Fn>(dst, srcs, n, count);
  // More sources than fit in one pass: block by block, with the running result in L1. It has its
  // own buffer because dst may be a source that a later pass reads.
  alignas(64) T acc[kBlock];
  for (std::size_t at = 0; at < count; at += kBlock) {
    const std::size_t m = std::min(kBlock, count - at);
    const T* part[kFew];
    for (int k = 0; k < kFew; ++k) part[k] = srcs[k] + at;
    reduce_few<T, Fn>(acc, part, kFew, m);
    for (int from = kFew; from < n; from += kFew - 1) {
      const int take = std::min(kFew - 1, n - from);
      part[0] = acc;
      for (int k = 0; k < take; ++k) part[k + 1] = srcs[from + k] + at;
      reduce_few<T, Fn>(acc, part, take + 1, m);
    }
    std::memcpy(dst + at, acc, m * sizeof(T));
  }
}

// Bitwise operators are independent of the type.
template <class T, class Fn>
void reduce_bits(void* dst, const void* const* srcs, int n, std::size_t count) {
  reduce<std::uint8_t, Fn>(dst, srcs, n, count * sizeof(T));
}

// IEEE half precision.
struct Half {
  static void load(float* to, const Bits16* from, std::size_t count) {
    std::size_t i = 0;
#ifdef __F16C__
    for (; i + 8 <= count; i += 8)
      _mm256_storeu_ps(
          to + i, _mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(from + i))));
#endif
    for (; i < count; ++i) to[i] = widen(from[i]);
  }
  static void store(Bits16* to, const float* from, std::size_t count) {
    std::size_t i = 0;
#ifdef __F16C__
    for (; i + 8 <= count; i += 8)
      _mm_storeu_si128(reinterpret_cast<__m128i*>(to + i),
                       _mm256_cvtps_ph(_mm256_loadu_ps(from + i),
                                       _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC));
#endif
    for (; i < count; ++i) to[i] = narrow(from[i]);
  }
  static float widen(std::uint16_t h) {
    const std::uint32_t sign = (h & 0x8000u) << 16, exponent = (h >> 10) & 31, mantissa = h & 0x3ff;
    if (exponent == 31)  // a NaN becomes quiet, as with the processor's instruction
      return std::bit_cast<float>(sign | 0x7f800000u | (mantissa << 13) |
                                  (mantissa != 0 ? 0x400000u : 0u));
    if (exponent == 0) {  // subnormal or zero: mantissa * 2^-24, exact
      const float f = static_cast<float>(mantissa) * 0x1p-24f;
      return sign ? -f : f;
    }
    return std::bit_cast<float>(sign | ((exponent + 112) << 23) | (mantissa << 13));
  }
  static std::uint16_t narrow(float f) {  // to nearest, ties to even
    const std::uint32_t bits = std::bit_cast<std::uint32_t>(f);
    const std::uint32_t sign = (bits >> 16) & 0x8000u, magnitude = bits & 0x7fffffffu;
    if (magnitude > 0x7f800000u)
      return static_cast<std::uint16_t>(sign | 0x7e00u | (magnitude >> 13 & 0x3ffu));
    if (magnitude >= 0x477ff000u) return static_cast<std::uint16_t>(sign | 0x7c00u);
    if (magnitude < 0x38800000u) {  // subnormal: let the addition round at the right place
      const float shifted = std::bit_cast<float>(magnitude) + 0.5f;
      return static_cast<std::uint16_t>(sign |
                                        (std::bit_cast<std::uint32_t>(shifted) - 0x3f000000u));
    }
    const std::uint32_t odd = (magnitude >> 13) & 1;
    return static_cast<std::uint16_t>(sign | ((magnitude - 0x38000000u + 0xfffu + odd) >> 13));
  }
};

// The upper half of an fp32.
struct BFloat {
  static void load(float* to, const Bits16* from, std::size_t count) {
    for (std::size_t i = 0; i < count; ++i)
      to[i] = std::bit_cast<float>(static_cast<std::uint32_t>(from[i]) << 16);
  }
  static void store(Bits16* to, const float* from, std::size_t count) {
    for (std::size_t i = 0; i < count; ++i) {
      const std::uint32_t bits = std::bit_cast<std::uint32_t>(from[i]);
      const std::uint32_t rounded = (bits + 0x7fffu + ((bits >> 16) & 1)) >> 16;
      const std::uint32_t nan = (bits >> 16) | 0x40u;
      to[i] = static_cast<std::uint16_t>((bits & 0x7fffffffu) > 0x7f800000u ? nan : rounded);
    }
  }
};

template <class Format, class Fn>
void reduce_half(void* dst_v, const void* const* srcs, int n, std::size_t count) {
  auto* dst = static_cast<Bits16*>(dst_v);
  alignas(64) float acc[kBlock], next[kBlock];
  for (std::size_t at = 0; at < count; at += kBlock) {
    const std::size_t m = std::min(kBlock, count - at);
    Format::load(acc, static_cast<const Bits16*>(srcs[0]) + at, m);
    for (int k = 1; k < n; ++k) {
      Format::load(next, static_cast<const Bits16*>(srcs[k]) + at, m);
      for (std::size_t i = 0; i < m; ++i) acc[i] = Fn::template apply<float>(acc[i], next[i]);
    }
    Format::store(dst + at, acc, m);
  }
}

// dst[i] = op(src[i]), in fp32.
template <class Format, class F>
void map_half(void* dst_v, const void* src, std::size_t count, F op) {
  auto* dst = static_cast<Bits16*>(dst_v);
  alignas(64) float acc[kBlock];
  for (std::size_t at = 0; at < count; at += kBlock) {
    const std::size_t m = std::min(kBlock, count - at);
    Format::load(acc, static_cast<const Bits16*>(src) + at, m);
    for (std::size_t i = 0; i < m; ++i) acc[i] = op(acc[i]);
    Format::store(dst + at, acc, m);
  }
}

template <class Format>
void scale_half(void* dst, const void* src, int n, std::size_t count) {
  map_half<Format>(dst, src, count, [n](float x) { return x / static_cast<float>(n); });
}

// Division by a fixed number from 2 on, as a product and shifts: processors can vectorize these,
// but not integer division. U has 16 bits or more. The quotient is exact (Granlund and Montgomery,
// "Division by Invariant Integers using Multiplication", 1994, figure 4.1).
template <class U>
class Divisor {
 public:
  explicit Divisor(U n)
      : shift_(static_cast<int>(std::bit_width(static_cast<U>(n - 1))) - 1),
        factor_(static_cast<U>((((Wide{2} << shift_) - n) << kBits) / n + 1)) {}
  U quotient(U x) const {
    const auto high = static_cast<U>(static_cast<Wide>(static_cast<Wide>(x) * factor_) >> kBits);
    const auto half = static_cast<U>(static_cast<U>(x - high) >> 1);
    return static_cast<U>(static_cast<U>(high + half) >> shift_);
  }

 private:
  __extension__ typedef unsigned __int128 U128;
  using Wide = std::conditional_t<sizeof(U) == 8, U128,
                                  std::conditional_t<sizeof(U) == 4, std::uint64_t, std::uint32_t>>;
  static constexpr int kBits = 8 * sizeof(U);
  int shift_;
  U factor_;
};

// For bytes one product is enough: x / n is the upper half of x * factor, for x < 256 and
// 1 < n < 256. `factor` exceeds 2^16 / n by at most 1, which adds at most x / 2^16 to the
// quotient, and x * n < 2^16. A product of magnitudes takes half the time of a signed one.
template <class T>
class ByteDivisor {
 public:
  explicit ByteDivisor(int n) : factor_(static_cast<std::uint16_t>((1 << 16) / n + 1)) {}
  T quotient(T x) const {
    if constexpr (std::is_unsigned_v<T>) {
      return of_magnitude(x);
    } else {
      const std::uint8_t q = of_magnitude(static_cast<std::uint8_t>(x < 0 ? -x : x));
      return static_cast<T>(x < 0 ? -q : q);
    }
  }

 private:
  std::uint8_t of_magnitude(std::uint8_t x) const {
    return static_cast<std::uint8_t>(static_cast<std::uint32_t>(x) * factor_ >> 16);
  }
  std::uint16_t factor_;
};

// Rounds towards zero: the quotient of the magnitudes, with the sign.
template <class T>
struct WideDivisor {
  using U = std::make_unsigned_t<T>;
  explicit WideDivisor(int n) : of_magnitude_(static_cast<U>(n)) {}
  T quotient(T value) const {
    const auto x = static_cast<U>(value);
    if constexpr (std::is_unsigned_v<T>) return of_magnitude_.quotient(x);
    const auto sign = static_cast<U>(static_cast<T>(x) >> (8 * sizeof(U) - 1));
    const U q = of_magnitude_.quotient(static_cast<U>(static_cast<U>(x ^ sign) - sign));
    return static_cast<T>(static_cast<U>(static_cast<U>(q ^ sign) - sign));
  }

 private:
  Divisor<U> of_magnitude_;
};

template <class T>
void scale_integer(void* dst_v, const void* src_v, int n, std::size_t count) {
  if (n == 1) {
    if (dst_v != src_v) std::memcpy(dst_v, src_v, count * sizeof(T));
    return;
  }
  if (static_cast<unsigned>(n) > std::numeric_limits<std::make_unsigned_t<T>>::max()) {
    std::memset(dst_v, 0, count * sizeof(T));  // n exceeds every magnitude
    return;
  }
  const std::conditional_t<sizeof(T) == 1, ByteDivisor<T>, WideDivisor<T>> divisor(n);
  auto* dst = static_cast<typename Loose<T>::type*>(dst_v);
  const auto* src = static_cast<const typename Loose<T>::type*>(src_v);
#pragma GCC ivdep
  for (std::size_t i = 0; i < count; ++i) dst[i] = divisor.quotient(src[i]);
}

template <class T>
void scale_float(void* dst_v, const void* src_v, int n, std::size_t count) {
  auto* dst = static_cast<typename Loose<T>::type*>(dst_v);
  const auto* src = static_cast<const typename Loose<T>::type*>(src_v);
#pragma GCC ivdep
  for (std::size_t i = 0; i < count; ++i) dst[i] = src[i] / static_cast<T>(n);
}

template <class Format>
void multiply_half(void* dst, const void* src, double factor, std::size_t count) {
  const auto f = static_cast<float>(factor);
  map_half<Format>(dst, src, count, [f](float x) { return x * f; });
}

}  // namespace

// In the order of RedOp. Sums and products of signed integers use unsigned types, which wrap
// around.
#define WEFT_FLOAT_ROW(T)                                                            \
  {                                                                                  \
    reduce<T, Sum>, reduce<T, Min>, reduce<T, Max>, reduce<T, Sum>, reduce<T, Prod>, \
        reduce<T, Sum>, nullptr, nullptr, nullptr                                    \
  }
#define WEFT_INT_ROW(T, U)                                                           \
  {                                                                                  \
    reduce<U, Sum>, reduce<T, Min>, reduce<T, Max>, reduce<U, Sum>, reduce<U, Prod>, \
        reduce<U, Sum>, reduce_bits<U, And>, reduce_bits<U, Or>, reduce_bits<U, Xor> \
  }
#define WEFT_HALF_ROW(F)                                                                \
  {                                                                                     \
    reduce_half<F, Sum>, reduce_half<F, Min>, reduce_half<F, Max>, reduce_half<F, Sum>, \
        reduce_half<F, Prod>, reduce_half<F, Sum>, nullptr, nullptr, nullptr            \
  }
using U8 = std::uint8_t;
const KernelTable WEFT_CAT(kernels_, WEFT_ISA) = {
    WEFT_STR(WEFT_ISA),
    {WEFT_FLOAT_ROW(float),
     WEFT_FLOAT_ROW(double),
     WEFT_INT_ROW(std::int32_t, std::uint32_t),
     WEFT_INT_ROW(std::int64_t, std::uint64_t),
     WEFT_HALF_ROW(Half),
     WEFT_HALF_ROW(BFloat),
     WEFT_INT_ROW(std::int8_t, U8),
     WEFT_INT_ROW(U8, U8),
     WEFT_INT_ROW(std::int16_t, std::uint16_t),
     WEFT_INT_ROW(std::uint16_t, std::uint16_t),
     WEFT_INT_ROW(std::uint32_t, std::uint32_t),
     WEFT_INT_ROW(std::uint64_t, std::uint64_t),
     {reduce<U8, Max>, reduce<U8, Min>, reduce<U8, Max>, nullptr, reduce<U8, Min>, nullptr,
      reduce_bits<U8, And>, reduce_bits<U8, Or>, reduce_bits<U8, Xor>}},
    {scale_float<float>, scale_float<double>, scale_integer<std::int32_t>,
     scale_integer<std::int64_t>, scale_half<Half>, scale_half<BFloat>, scale_integer<std::int8_t>,
     scale_integer<U8>, scale_integer<std::int16_t>, scale_integer<std::uint16_t>,
     scale_integer<std::uint32_t>, scale_integer<std::uint64_t>, scale_integer<U8>},
    {multiply_half<Half>, multiply_half<BFloat>},
    WEFT_CAT(codecs_, WEFT_ISA)};

}  // namespace weft
