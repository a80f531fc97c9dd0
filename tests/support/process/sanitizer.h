// Whether this build has a sanitizer, which needs more memory and time.
#pragma once

#include <cstddef>

namespace weft::testing {

// clang reports it by __has_feature, GCC by a macro.
#if defined(__has_feature)
#if __has_feature(thread_sanitizer)
#define WEFT_THREAD_SANITIZER 1
#elif __has_feature(address_sanitizer)
#define WEFT_ADDRESS_SANITIZER 1
#endif
#elif defined(__SANITIZE_THREAD__)
#define WEFT_THREAD_SANITIZER 1
#elif defined(__SANITIZE_ADDRESS__)
#define WEFT_ADDRESS_SANITIZER 1
#endif

#if defined(WEFT_ADDRESS_SANITIZER) || defined(WEFT_THREAD_SANITIZER)
inline constexpr bool kSanitizer = true;
#else
inline constexpr bool kSanitizer = false;
#endif

// Bytes of memory per byte touched: ThreadSanitizer adds four and a half.
#if defined(WEFT_THREAD_SANITIZER)
inline constexpr std::size_t kBytesPerByte = 6;
#else
inline constexpr std::size_t kBytesPerByte = 1;
#endif

}  // namespace weft::testing
