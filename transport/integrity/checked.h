// Integrity: a transport over which every message is checked end to end and, where it arrived
// changed, sent again.
//
// The sender computes a crc32c over the bytes as it hands them down and tells the receiver in a
// short note of its own; the receiver computes it over what it is about to hand up, wherever that
// lies. If they are equal it acknowledges, and only then the send completes: until then the bytes
// stay where they are, to be sent again. A message that arrives changed kIntegrityTries times ends
// in kCorrupt. Notes carry their content twice, each with a checksum.
//
// The sums are made where the bytes pass anyway: with the sender's copy to the memory that is
// shared, with the receiver's copy to where it wants them, and, of a view `by_reader`, by the
// caller as it reads.
//
// Both ends must be checked. There are no boards.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>

#include "transport/transport.h"

namespace weft {

inline constexpr int kIntegrityTries = 5;

// Upper halves of ids from here on are those of its own messages: no transfer of the caller's has
// one.
inline constexpr std::uint32_t kCheckedIds = 0xffff0000;

// rail: what to call it in errors, where messages do not say themselves which one they came over.
// retried: called, in poll(), for every message that is asked for again.
std::unique_ptr<Transport> make_checked_transport(
    std::unique_ptr<Transport> inner, Rank me, int nranks, std::function<void()> retried = [] {},
    int rail = -1);

}  // namespace weft
