// CRC-32C (Castagnoli), as in iSCSI. Where bytes are copied anyway the sum costs next to nothing if
// it is made in the same pass: a copy waits for memory, and the processor has nothing else to do.
#pragma once

#include <cstddef>
#include <cstdint>

namespace weft {

// Of the bytes; `before`: the sum of what came before them.
std::uint32_t crc32c(const void* data, std::size_t bytes, std::uint32_t before = 0) noexcept;

// The same, and copies the bytes. They must not overlap. streaming: dst will not be read soon.
std::uint32_t copy_crc32c(void* dst, const void* src, std::size_t bytes, bool streaming) noexcept;

}  // namespace weft
