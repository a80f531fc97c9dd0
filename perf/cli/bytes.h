// Sizes in command lines and reports: 8, 16K, 64M, 1G (K = 1024).
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace weft {

// Parses "8", "16K", "64M", "1G", "2T"; also "16KiB", "16KB", in either case: K is always 1024.
// Throws Error naming `flag` and the text, also for 0.
std::uint64_t parse_bytes(std::string_view flag, std::string_view text);

// Returns the shortest exact form: 65536 -> "64K", 1000 -> "1000".
std::string format_bytes(std::uint64_t bytes);

// Returns begin, begin * factor, ... up to `end`; with a step, begin, begin + step, ... . Throws
// Error when begin > end, when the factor in use is below 2, and when there are too many sizes.
std::vector<std::uint64_t> size_ladder(std::uint64_t begin, std::uint64_t end, std::uint64_t factor,
                                       std::uint64_t step = 0);

}  // namespace weft
