// Copies with non-temporal stores if the processor has them.
#include "transport/memory/copy.h"

#include <algorithm>
#include <cstdint>
#include <cstring>
#ifdef __x86_64__
#include <immintrin.h>
#endif

namespace weft {
namespace {

#ifdef __x86_64__
__attribute__((target("avx512f"))) void stream_avx512(char* d, const char* s, std::size_t lines) {
  for (; lines; --lines, d += 64, s += 64)
    _mm512_stream_si512(reinterpret_cast<__m512i*>(d), _mm512_loadu_si512(s));
  _mm_sfence();
}

void stream_sse2(char* d, const char* s, std::size_t lines) {
  for (; lines; --lines, d += 64, s += 64)
    for (int i = 0; i < 64; i += 16)
      _mm_stream_si128(reinterpret_cast<__m128i*>(d + i),
                       _mm_loadu_si128(reinterpret_cast<const __m128i*>(s + i)));
  _mm_sfence();
}
#endif

}  // namespace

void copy_bytes(void* dst, const void* src, std::size_t bytes, bool streaming) noexcept {
#ifdef __x86_64__
  if (streaming && bytes >= 1024) {
    static const bool wide = __builtin_cpu_supports("avx512f");
    char* d = static_cast<char*>(dst);
    const char* s = static_cast<const char*>(src);
    const std::size_t head = (64 - (reinterpret_cast<std::uintptr_t>(d) & 63)) & 63;
    std::memcpy(d, s, head);
    const std::size_t lines = (bytes - head) / 64;
    (wide ? stream_avx512 : stream_sse2)(d + head, s + head, lines);
    const std::size_t done = head + lines * 64;
    std::memcpy(d + done, s + done, bytes - done);
    return;
  }
#else
  (void)streaming;
#endif
  if (bytes) std::memcpy(dst, src, bytes);
}

}  // namespace weft
