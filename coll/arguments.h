// What users pass to a collective, checked before anything is started: sizes that fit, pointers
// that are there and do not overlap, roots and peers that exist, operators that mean something.
#pragma once

#include <cstddef>

#include "coll/engine.h"
#include "coll/types.h"
#include "topo/status.h"

namespace weft {

// Of rank `me` of n. ok, and whether the call is in place; or kInvalidArgument, a sentence with the
// value that is wrong and what to pass instead.
Status check_arguments(Collective c, const Call& call, Rank root, Rank me, std::size_t n,
                       bool& in_place);

// Of a send or a recv.
Status check_message(bool send, const void* data, std::size_t count, DType type, Rank peer,
                     std::size_t n);

}  // namespace weft
