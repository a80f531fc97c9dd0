// Detects that ranks disagree about a call; the error has the arguments of both ranks. The caller
// of each function holds the core's mutex; a Status is ok if no rank disagrees.
#pragma once

#include <cstdint>

#include "coll/runtime/core.h"

namespace weft {

// The bits of a tag that identify the communicator and the collective.
inline constexpr std::uint64_t kPlaceMask =
    ~((std::uint64_t{1} << (kRoundBits + kOrdinalBits)) - 1);

// After a transfer of the run ended with kMismatch: finds the peer whose message has another head.
// That head can arrive after the failure, because messages may overtake each other.
Status disputed_call(const GroupState& g, const Run& run) WEFT_REQUIRES(core_held);
// As above, for a message with head `mine` to or from the world rank `peer`.
Status disputed_message(const Core& core, const Head& mine, Rank peer) WEFT_REQUIRES(core_held);
// Searches links and boards for a message of a call that this rank does not run. run: the run of a
// task with a schedule. The search is slow: call it only in a stall.
Status unexpected_message(const Task& task, const Run* run = nullptr) WEFT_REQUIRES(core_held);
// The mismatch between `task` and the member's message in the board's round.
Status diverging_on_board(const Task& task, int member) WEFT_REQUIRES(core_held);
// Searches a link for a message of a collective that has ended on this rank.
Status unexpected_after(const Core& core, const Past& past, Transport& of);
// As above, for all communicators and links.
Status unexpected_at_end(const Core& core) WEFT_REQUIRES(core_held);

}  // namespace weft
