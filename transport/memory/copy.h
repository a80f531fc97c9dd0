// memcpy with a hint whether the destination will be read soon.
#pragma once

#include <cstddef>

namespace weft {

// Copies like memcpy. With `streaming`, uses non-temporal stores if the processor has them: they do
// not read the destination and leave the cache to other data.
void copy_bytes(void* dst, const void* src, std::size_t bytes, bool streaming) noexcept;

}  // namespace weft
