// CRC-32C (Castagnoli), as in iSCSI. The CRC has almost no cost in the same pass as a copy, since
// memory bandwidth limits the copy.
#pragma once

#include <cstddef>
#include <cstdint>

namespace weft {

// Returns the crc32c of the bytes, continuing from `before`, the CRC of the preceding bytes.
std::uint32_t crc32c(const void* data, std::size_t bytes, std::uint32_t before = 0) noexcept;

// Copies `src` to `dst` and returns its crc32c. The ranges must not overlap. streaming: see copy.h.
std::uint32_t copy_crc32c(void* dst, const void* src, std::size_t bytes, bool streaming) noexcept;

}  // namespace weft
