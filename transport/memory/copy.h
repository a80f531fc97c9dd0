// Copies that know whether the destination is read again soon.
#pragma once

#include <cstddef>

namespace weft {

// Copies as memcpy does. With `streaming` it uses non-temporal stores where the processor has them:
// they do not read the destination and leave the cache to other data.
void copy_bytes(void* dst, const void* src, std::size_t bytes, bool streaming) noexcept;

}  // namespace weft
