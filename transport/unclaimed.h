// How far a peer may run ahead: what it sends before anybody asks for it is kept in memory. Not
// installed.
#pragma once

#include <fmt/format.h>

#include <cstddef>
#include <cstdint>
#include <string>

#include "topo/base/environment.h"

namespace weft {

// WEFT_UNCLAIMED_BYTES: what is kept of a peer's messages, their book-keeping included. Throws
// Error on what is no such number.
inline std::size_t unclaimed_limit() {
  constexpr const char* kName = "WEFT_UNCLAIMED_BYTES";
  if (!is_set(kName)) return std::size_t{1} << 30;
  return static_cast<std::size_t>(required_number(kName, 1 << 12, std::int64_t{1} << 50));
}

// Why the connection with a peer ends that goes beyond it.
inline std::string too_far_ahead(std::size_t limit) {
  return fmt::format(
      "messages of it that no receive has asked for yet take more than {} bytes; "
      "raise WEFT_UNCLAIMED_BYTES, or let it run less far ahead",
      limit);
}

}  // namespace weft
