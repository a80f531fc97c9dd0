// Checks a call's arguments before anything starts: sizes fit, pointers are set and do not overlap,
// roots and peers exist, the operator is defined. This file is independent of how a call is run.
#pragma once

#include <cstddef>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

#include "coll/engine/engine.h"
#include "coll/types.h"
#include "topo/base/status.h"

namespace weft {

struct Message;

// Checks the call of rank `me` of n. Returns true and sets `in_place`, or returns false and sets
// `status` to kInvalidArgument, with a message that names the wrong value and a correct one.
bool check_arguments(Collective c, const Call& call, Rank root, Rank me, std::size_t n,
                     bool& in_place, Status& status);

// Computes Call::total_bytes; the arguments must be checked. All ranks must slice a message alike,
// but no rank knows all sizes of an all_to_all_v: there the value is the largest possible one, or 0
// if all of the rank's own blocks are empty.
std::size_t total_bytes(Collective c, const Call& call, std::size_t n);

// Copies the block sizes and offsets of a vector call into the returned vector; without offsets,
// the blocks are consecutive. The call's spans then point into the vector, and stay valid when it
// is moved.
std::vector<std::size_t> own_blocks(Call& call, std::size_t n);

// The status that a call of an empty Communicator returns.
Status empty_communicator(std::string_view call);

// Checks a send or a receive in a group of n ranks, like check_arguments().
Status check_message(bool send, const void* data, std::size_t count, DType type, Rank peer,
                     std::size_t n);
// Pairs each message that rank `me` sends to itself with the message's receive, as indices into
// `messages`; returns kInvalidArgument if counts or sizes differ. The error names `call`.
Status check_own_messages(const char* call, std::span<const Message> messages, Rank me,
                          std::vector<std::pair<std::size_t, std::size_t>>& pairs);

}  // namespace weft
