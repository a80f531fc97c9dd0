// Copies that know whether the destination will be read again soon.
#pragma once

#include <cstddef>

namespace weft {

// memcpy; with `streaming`, non-temporal stores where the processor has them, which saves reading
// the destination and keeps the cache for others.
void copy_bytes(void* dst, const void* src, std::size_t bytes, bool streaming) noexcept;

}  // namespace weft
