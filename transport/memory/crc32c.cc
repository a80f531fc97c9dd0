// Computes CRC-32C with processor instructions, alone or while copying.
#include "transport/memory/crc32c.h"

#include <isa-l/crc.h>

#include <algorithm>
#include <cstring>
#ifdef __x86_64__
#include <immintrin.h>
#endif

#include "transport/memory/copy.h"

namespace weft {
namespace {

// Returns the CRC without the initial and the final complement.
std::uint32_t raw(const void* data, std::size_t bytes, std::uint32_t crc) noexcept {
  auto* p = static_cast<unsigned char*>(const_cast<void*>(data));
  while (bytes > 0) {  // ISA-L takes the length as int
    const std::size_t piece = std::min(bytes, std::size_t{1} << 30);
    crc = crc32_iscsi(p, static_cast<int>(piece), crc);
    p += piece;
    bytes -= piece;
  }
  return crc;
}

#ifdef __x86_64__

// Returns x^n modulo the polynomial, bit-reflected, and shifted left by one bit to compensate for
// the missing bit in the product of two reflected factors.
constexpr std::uint64_t power(unsigned n) {
  std::uint32_t r = 0x80000000u;
  for (unsigned i = 0; i < n; ++i) r = r >> 1 ^ (r & 1 ? 0x82f63b78u : 0);
  return static_cast<std::uint64_t>(r) << 1;
}

// The factors that advance a 128-bit lane by `bits`.
struct alignas(16) Fold {
  std::uint64_t low, high;
};
constexpr Fold fold_by(unsigned bits) { return {power(bits + 32), power(bits - 32)}; }
constexpr Fold kBy2048 = fold_by(2048), kBy512 = fold_by(512), kBy128 = fold_by(128);

#define WEFT_FOLDS __attribute__((target("avx512f,avx512bw,avx512vl,vpclmulqdq,pclmul,sse4.2")))

WEFT_FOLDS inline __m512i folded(__m512i x, __m512i by, __m512i next) {
  return _mm512_ternarylogic_epi64(_mm512_clmulepi64_epi128(x, by, 0x00),
                                   _mm512_clmulepi64_epi128(x, by, 0x11), next, 0x96);
}
WEFT_FOLDS inline __m128i folded(__m128i x, __m128i by, __m128i next) {
  return _mm_xor_si128(
      _mm_xor_si128(_mm_clmulepi64_si128(x, by, 0x00), _mm_clmulepi64_si128(x, by, 0x11)), next);
}
WEFT_FOLDS inline __m512i four_times(const Fold& fold) {
  return _mm512_maskz_broadcast_i32x4(0xffff,
                                      _mm_load_si128(reinterpret_cast<const __m128i*>(&fold)));
}
template <int kLane>
WEFT_FOLDS inline __m128i lane(__m512i x) {
  // The unmasked form reads a variable that GCC 12's header leaves uninitialized on purpose, which
  // triggers a warning.
  return _mm512_maskz_extracti32x4_epi32(0xf, x, kLane);
}
template <bool kStreaming>
WEFT_FOLDS inline __m512i moved(char* d, const char* s) {
  const __m512i x = _mm512_loadu_si512(s);
  if constexpr (kStreaming)
    _mm512_stream_si512(reinterpret_cast<__m512i*>(d), x);
  else
    _mm512_storeu_si512(d, x);
  return x;
}

constexpr std::size_t kStride = 256;

// Copies `strides` > 0 times kStride bytes and returns their raw CRC. Folding as in V. Gopal et
// al., "Fast CRC Computation for Generic Polynomials Using PCLMULQDQ Instruction" (Intel, 2009).
template <bool kStreaming>
WEFT_FOLDS std::uint32_t copy_strides(char* d, const char* s, std::size_t strides,
                                      std::uint32_t crc) {
  // Distance of the prefetches, larger than the hardware prefetcher's.
  constexpr int kAhead = kStreaming ? 2048 : 4096;
  __m512i a = moved<kStreaming>(d, s), b = moved<kStreaming>(d + 64, s + 64),
          c = moved<kStreaming>(d + 128, s + 128), e = moved<kStreaming>(d + 192, s + 192);
  a = _mm512_xor_si512(a, _mm512_zextsi128_si512(_mm_cvtsi32_si128(static_cast<int>(crc))));
  __m512i by = four_times(kBy2048);
  while (--strides > 0) {
    d += kStride;
    s += kStride;
    for (int i = 0; i < static_cast<int>(kStride); i += 64)
      _mm_prefetch(s + kAhead + i, _MM_HINT_T0);
    a = folded(a, by, moved<kStreaming>(d, s));
    b = folded(b, by, moved<kStreaming>(d + 64, s + 64));
    c = folded(c, by, moved<kStreaming>(d + 128, s + 128));
    e = folded(e, by, moved<kStreaming>(d + 192, s + 192));
  }
  by = four_times(kBy512);
  a = folded(folded(folded(a, by, b), by, c), by, e);
  const __m128i by128 = _mm_load_si128(reinterpret_cast<const __m128i*>(&kBy128));
  const __m128i x =
      folded(folded(folded(lane<0>(a), by128, lane<1>(a)), by128, lane<2>(a)), by128, lane<3>(a));
  if constexpr (kStreaming) _mm_sfence();
  const auto low = static_cast<unsigned long long>(_mm_cvtsi128_si64(x));
  const auto high = static_cast<unsigned long long>(_mm_extract_epi64(x, 1));
  return static_cast<std::uint32_t>(_mm_crc32_u64(_mm_crc32_u64(0, low), high));
}

bool folds() noexcept {
  static const bool can = __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
                          __builtin_cpu_supports("avx512vl") &&
                          __builtin_cpu_supports("vpclmulqdq") &&
                          __builtin_cpu_supports("pclmul") && __builtin_cpu_supports("sse4.2");
  return can;
}

#endif

}  // namespace

std::uint32_t crc32c(const void* data, std::size_t bytes, std::uint32_t before) noexcept {
  return ~raw(data, bytes, ~before);
}

std::uint32_t copy_crc32c(void* dst, const void* src, std::size_t bytes, bool streaming) noexcept {
#ifdef __x86_64__
  if (bytes >= 4 * kStride && folds()) {
    auto* d = static_cast<char*>(dst);
    const auto* s = static_cast<const char*>(src);
    const std::size_t head = (64 - (reinterpret_cast<std::uintptr_t>(d) & 63)) & 63;
    std::memcpy(d, s, head);
    std::uint32_t crc = raw(s, head, ~0u);
    const std::size_t strides = (bytes - head) / kStride, done = head + strides * kStride;
    crc = (streaming ? copy_strides<true> : copy_strides<false>)(d + head, s + head, strides, crc);
    std::memcpy(d + done, s + done, bytes - done);
    return ~raw(s + done, bytes - done, crc);
  }
#endif
  copy_bytes(dst, src, bytes, streaming);
  return crc32c(src, bytes);
}

}  // namespace weft
