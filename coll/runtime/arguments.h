// What users pass to a collective, checked before anything is started: sizes that fit, pointers
// that are there and do not overlap, roots and peers that exist, operators that mean something.
#pragma once

#include <cstddef>
#include <span>
#include <utility>
#include <vector>

#include "coll/engine/engine.h"
#include "coll/types.h"
#include "topo/base/status.h"

namespace weft {

struct Message;

// Of rank `me` of n. ok, and whether the call is in place; or kInvalidArgument, a sentence with the
// value that is wrong and what to pass instead.
Status check_arguments(Collective c, const Call& call, Rank root, Rank me, std::size_t n,
                       bool& in_place);

// Bytes of the message: Call::total_bytes, of checked arguments. Where a vector all_to_all is cut
// must follow from what all ranks know, so it is as large as can be there, unless it is empty.
std::size_t total_bytes(Collective c, const Call& call, std::size_t n);

// The block sizes of a vector call, and where blocks begin (where the user says nothing: one after
// the other); the call's spans point to it afterwards. Moving the vector keeps them valid.
std::vector<std::size_t> own_blocks(Call& call, std::size_t n);

// Of a send or a recv.
Status check_message(bool send, const void* data, std::size_t count, DType type, Rank peer,
                     std::size_t n);
// What rank `me` sends to itself among the messages of one `call`: each with the receive of it, as
// indices.
Status check_own_messages(const char* call, std::span<const Message> messages, Rank me,
                          std::vector<std::pair<std::size_t, std::size_t>>& pairs);

}  // namespace weft
