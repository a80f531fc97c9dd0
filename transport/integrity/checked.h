// Integrity: a transport that checks every message end to end and sends a message that arrived
// changed again.
//
// The sender computes a crc32c over the bytes it posts, and the sum travels in the message's head.
// The receiver computes the crc32c over the bytes it is about to deliver. If both sums are equal
// the receiver acknowledges, and only then the send completes: the sender keeps the bytes until
// then, to send them again. A message that arrives changed kIntegrityTries times ends in kCorrupt.
//
// Acknowledgements and requests to send again travel in notes, short messages of this layer. One
// note acknowledges all messages of a peer that come in one poll, up to four. A note carries its
// content twice, each with a checksum.
//
// The sums cost no pass of their own: the sender's copy to shared memory computes its sum, the
// receiver's copy to the destination its own, and the caller sums a view `by_reader` as it reads.
//
// Both ends must use this transport. It has no boards.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>

#include "transport/transport.h"

namespace weft {

inline constexpr int kIntegrityTries = 5;

// Ids whose upper half is this or more belong to the layer's own messages: no transfer of the
// caller may have one.
inline constexpr std::uint32_t kCheckedIds = 0xffff0000;

// Wraps `inner`. Errors name `rail` for messages whose completion names no rail. poll() calls
// `retried` for every message that it requests again.
std::unique_ptr<Transport> make_checked_transport(
    std::unique_ptr<Transport> inner, Rank me, int nranks, std::function<void()> retried = [] {},
    int rail = -1);

}  // namespace weft
