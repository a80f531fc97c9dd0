// The contents of a slot. Both ends run the same build, so the structs are the wire format.
#pragma once

#include <cstddef>
#include <cstdint>

#include "transport/transport.h"

namespace weft {

enum class VerbsMessage : std::uint32_t {
  kData,      // an eager message: its bytes follow
  kRts,       // a long message waits for its receive (ready to send)
  kCts,       // the receive is posted: a VerbsCts follows
  kWithdraw,  // cancels an RTS
};

// The beginning of a slot. The Head follows if `headed`, then the bytes or the VerbsCts.
struct VerbsMessageFront {
  std::uint64_t tag = 0;
  std::uint64_t bytes = 0;  // of the message
  VerbsMessage what = VerbsMessage::kData;
  std::uint32_t headed : 1 = 0;
  std::uint32_t number : 31 = 0;  // of a long message, chosen by its sender
};
static_assert(sizeof(VerbsMessageFront) == 24);

// Clear to send: the registered memory for the long message.
struct VerbsCts {
  std::uint64_t address = 0;
  std::uint32_t key = 0;
  std::uint32_t window = 0;
};

inline constexpr std::size_t kVerbsFrontBytes = sizeof(VerbsMessageFront) + sizeof(Head);

// A window that is not full, in an invitation that resumes a connection (connections/letters.h).
struct VerbsOpenWindow {
  std::uint32_t number = 0;  // of the long message
  std::uint32_t zero = 0;
  VerbsCts cts;
};

}  // namespace weft
