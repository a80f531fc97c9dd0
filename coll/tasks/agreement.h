// Finds out that ranks disagree about the call that they run, and words it with the arguments of
// both. The caller of each function holds the core's mutex; a Status is ok where no rank disagrees.
#pragma once

#include "coll/runtime/core.h"

namespace weft {

// After a transfer of the run ended with kMismatch: looks for the peer whose message has another
// head. Messages may overtake each other, so that head can come after the failure.
Status disputed_call(const GroupState& g, const Run& run) WEFT_REQUIRES(core_held);
// The same for a message, with head `mine`, to or from the world rank `peer`.
Status disputed_message(const Core& core, const Head& mine, Rank peer) WEFT_REQUIRES(core_held);
// Searches for a message, on a link or on a board, of a call that this rank does not run. run: that
// of a task with a schedule. The search takes long: it is for when nothing moves.
Status unexpected_message(const Task& task, const Run* run = nullptr) WEFT_REQUIRES(core_held);
// The call of the member whose message in the board's round differs from that of `task`.
Status diverging_on_board(const Task& task, int member) WEFT_REQUIRES(core_held);
// After a collective of g: looks for a message of an earlier collective that is over here.
Status unexpected_of_last(const GroupState& g) WEFT_REQUIRES(core_held);
// Looks for such messages of all communicators.
Status unexpected_at_end(const Core& core) WEFT_REQUIRES(core_held);

}  // namespace weft
