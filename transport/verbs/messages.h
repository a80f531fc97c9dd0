// What lies in a slot. Same build at both ends, as the rest of weft.
#pragma once

#include <cstddef>
#include <cstdint>

#include "transport/transport.h"

namespace weft {

enum class VerbsMessage : std::uint32_t {
  kData,      // the bytes follow
  kAnnounce,  // a long message waits for its receive
  kGrant,     // it may be written: a VerbsGrant follows
  kWithdraw,  // an announced message will not come
};

// In front, at the beginning of the slot; then the Head where there is one, then what follows.
struct VerbsMessageFront {
  std::uint64_t tag = 0;
  std::uint64_t bytes = 0;  // of the message
  VerbsMessage what = VerbsMessage::kData;
  std::uint32_t headed : 1 = 0;
  std::uint32_t number : 31 = 0;  // of an announced message, the sender's
};
static_assert(sizeof(VerbsMessageFront) == 24);

struct VerbsGrant {
  std::uint64_t address = 0;
  std::uint32_t key = 0;
  std::uint32_t window = 0;
};

inline constexpr std::size_t kVerbsFrontBytes = sizeof(VerbsMessageFront) + sizeof(Head);

}  // namespace weft
