// Integrity: a transport that checks every message end to end and repeats messages that arrive
// corrupted.
//
// The sender computes a crc32c over the bytes it posts and sends it in the message's head. The
// receiver computes the crc32c over the bytes it is about to deliver. If the two are equal the
// receiver acknowledges, and only then the send completes: until then the sender keeps the bytes
// for a repetition. A message that arrives corrupted kIntegrityTries times fails with kCorrupt.
//
// Acknowledgments and requests to repeat are sent as notes, short messages of this layer. One note
// acknowledges up to four messages of a peer that arrive in one poll. A note has its content twice,
// each with a checksum.
//
// The checksums need no extra pass: they are computed by the sender's copy to shared memory, by the
// receiver's copy to the destination, and by the caller while it reads a view `by_reader`.
//
// Both ends must use this transport. Boards are not supported.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>

#include "transport/transport.h"

namespace weft {

inline constexpr int kIntegrityTries = 5;

// Ids with an upper half at or above this are reserved for the layer's own messages.
inline constexpr std::uint32_t kCheckedIds = 0xffff0000;

// Wraps `inner`. Errors name `rail` for messages whose completion names no rail. poll() calls
// `retried` for every repetition that it requests.
std::unique_ptr<Transport> make_checked_transport(
    std::unique_ptr<Transport> inner, Rank me, int nranks, std::function<void()> retried = [] {},
    int rail = -1);

}  // namespace weft
