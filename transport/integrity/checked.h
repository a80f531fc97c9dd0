// Integrity: a transport that verifies every message end to end and retransmits messages that
// arrive corrupted.
//
// The sender computes a crc32c over the bytes that it posts and sends it in the message's head. The
// receiver computes the crc32c over the bytes that it is about to deliver. If the two are equal,
// the receiver sends an acknowledgment. The send completes only with the acknowledgment: until then
// the sender keeps the bytes for a retransmission. A message that arrives corrupted kIntegrityTries
// times fails with kCorrupt.
//
// Acknowledgments and requests to retransmit are notes, short messages of this layer. One note
// acknowledges up to four messages of a peer that arrive in one poll. A note contains its content
// twice, each copy with a checksum.
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

// Wraps `inner`. Errors contain `rail` for messages whose completion contains no rail. poll() calls
// `retried` for every retransmission that it requests.
std::unique_ptr<Transport> make_checked_transport(
    std::unique_ptr<Transport> inner, Rank me, int nranks, std::function<void()> retried = [] {},
    int rail = -1);

}  // namespace weft
