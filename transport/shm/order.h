// Declares the ordering of shared-memory accesses to ThreadSanitizer. Ranks that are threads of one
// process map a segment at different addresses, so TSan cannot relate a store to a load. No code in
// other builds.
#pragma once

#include <cstddef>

#if defined(__has_feature)
#if __has_feature(thread_sanitizer)
#define WEFT_TSAN 1
#endif
#endif
#if defined(WEFT_TSAN)
extern "C" {
void __tsan_acquire(void* address);
void __tsan_release(void* address);
}
#endif

namespace weft::shm {

// The sync object for memory passed from one rank to another, or to all (`to` is -1).
#if defined(WEFT_TSAN)
inline void* way_between(int from, int to) {
  static char ways[1 << 16];
  return &ways[(static_cast<std::size_t>(from) << 8 ^ static_cast<std::size_t>(to)) % sizeof ways];
}
inline void hand_on(int from, int to) { __tsan_release(way_between(from, to)); }
inline void take_over(int from, int to) { __tsan_acquire(way_between(from, to)); }
#else
inline void hand_on(int, int) {}
inline void take_over(int, int) {}
#endif

}  // namespace weft::shm
