// Chooses the kernels for this processor. Holds the multiplication for premultiplied sums.
#include "coll/engine/kernels.h"

#ifdef WEFT_X86_ISAS
#include <cpuid.h>
#endif

#include <cstdint>
#include <cstring>
#include <type_traits>

#include "coll/engine/codec.h"
#include "coll/engine/kernels_table.h"

namespace weft {
namespace {

#ifdef WEFT_X86_ISAS
// clang 14's __builtin_cpu_supports() does not know this feature.
bool has_f16c() noexcept {
  unsigned a = 0, b = 0, c = 0, d = 0;
  return __get_cpuid(1, &a, &b, &c, &d) && (c & bit_F16C);
}
#endif

const KernelTable& table() noexcept {
#ifdef WEFT_X86_ISAS
  static const KernelTable& chosen = []() -> const KernelTable& {
    if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
        __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512dq"))
      return kernels_avx512;
    if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && has_f16c())
      return kernels_avx2;
    return kernels_base;
  }();
  return chosen;
#else
  return kernels_base;
#endif
}

const CodecTable& codec_table(Codec codec) noexcept { return table().codecs[codec == Codec::kFp8]; }

// Calls f with pointers of the type, for all types that C++ has.
template <class F>
void with_type(void* dst, const void* src, DType type, F f) {
  const auto call = [&]<class T>(T) { f(static_cast<T*>(dst), static_cast<const T*>(src)); };
  switch (type) {
    case DType::kFloat32:
      return call(float{});
    case DType::kFloat64:
      return call(double{});
    case DType::kInt8:
      return call(std::int8_t{});
    case DType::kInt16:
      return call(std::int16_t{});
    case DType::kInt32:
      return call(std::int32_t{});
    case DType::kInt64:
      return call(std::int64_t{});
    case DType::kUInt8:
    case DType::kBool:
      return call(std::uint8_t{});
    case DType::kUInt16:
      return call(std::uint16_t{});
    case DType::kUInt32:
      return call(std::uint32_t{});
    case DType::kUInt64:
      return call(std::uint64_t{});
    case DType::kFloat16:
    case DType::kBFloat16:
      return;
  }
}

// The user's pointers may be unaligned, and may alias other types.
template <class T>
struct Loose {
  typedef T type __attribute__((aligned(1), may_alias));
};

template <class T>
void multiply_by(T* to, const T* from, double factor, std::size_t count) {
  typename Loose<T>::type* dst = to;
  const typename Loose<T>::type* src = from;
  if constexpr (std::is_floating_point_v<T>) {
    const T f = static_cast<T>(factor);
    for (std::size_t i = 0; i < count; ++i) dst[i] = src[i] * f;
  } else {
    // Modulo 2^64, a multiple of the type's own modulus.
    const auto f = factor < 0 ? static_cast<std::uint64_t>(static_cast<std::int64_t>(factor))
                              : static_cast<std::uint64_t>(factor);
    for (std::size_t i = 0; i < count; ++i)
      dst[i] = static_cast<T>(static_cast<std::uint64_t>(src[i]) * f);
  }
}

}  // namespace

ReduceFn reduce_kernel(DType type, RedOp op) noexcept {
  return table().reduce[static_cast<int>(type)][static_cast<int>(op)];
}

void scale(void* dst, const void* src, DType type, int n, std::size_t count) noexcept {
  table().scale[static_cast<int>(type)](dst, src, n, count);
}

void multiply(void* dst, const void* src, DType type, double factor, std::size_t count) noexcept {
  if (type == DType::kFloat16 || type == DType::kBFloat16)
    return table().multiply_half[type == DType::kBFloat16](dst, src, factor, count);
  with_type(dst, src, type, [&](auto* to, auto* from) { multiply_by(to, from, factor, count); });
}

void encode(Codec codec, std::byte* to, const float* x, const float* carry, float* error,
            std::size_t count) noexcept {
  codec_table(codec).encode(to, x, carry, error, count);
}
void decode_sum(Codec codec, float* to, const std::byte* const* from, int n,
                std::size_t count) noexcept {
  codec_table(codec).decode_sum(to, from, n, count);
}

const char* kernel_isa() noexcept { return table().isa; }

}  // namespace weft
