// How many bytes of unexpected messages (arrived before their receive was posted) a transport keeps
// in memory for a peer.
#pragma once

#include <fmt/format.h>

#include <cstddef>
#include <cstdint>
#include <string>

#include "topo/base/environment.h"

namespace weft {

// Returns WEFT_UNCLAIMED_BYTES, the most memory for a peer's unexpected messages, book-keeping
// included; 1 GiB where unset. Throws Error when the value is no number or out of range.
inline std::size_t unclaimed_limit() {
  constexpr const char* kName = "WEFT_UNCLAIMED_BYTES";
  if (!is_set(kName)) return std::size_t{1} << 30;
  return static_cast<std::size_t>(required_number(kName, 1 << 12, std::int64_t{1} << 50));
}

// Returns the error text for a peer whose unexpected messages go beyond the limit.
inline std::string too_far_ahead(std::size_t limit) {
  return fmt::format(
      "messages of it that no receive has asked for yet take more than {} bytes; "
      "raise WEFT_UNCLAIMED_BYTES, or let it run less far ahead",
      limit);
}

}  // namespace weft
