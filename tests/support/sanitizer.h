// Whether this build has a sanitizer, which keeps memory of its own and is slow.
#pragma once

#include <cstddef>

namespace weft::testing {

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
inline constexpr bool kSanitizer = true;
#else
inline constexpr bool kSanitizer = false;
#endif

// Bytes of memory for a byte that is touched: ThreadSanitizer has four and a half of its own.
#if defined(__SANITIZE_THREAD__)
inline constexpr std::size_t kBytesPerByte = 6;
#else
inline constexpr std::size_t kBytesPerByte = 1;
#endif

}  // namespace weft::testing
