// The only table of the buffers that each collective reads and writes on each rank.
#pragma once

#include <cstddef>
#include <cstdint>

#include "coll/types.h"
#include "topo/base/status.h"

namespace weft {

// How much of a buffer a collective uses. kNothing: the pointer is ignored. kOne: the rank's own
// block or, without blocks, the whole message. kAll: a block of every rank.
enum class Part : std::uint8_t { kNothing, kOne, kAll };

constexpr std::size_t blocks_in(Part e, std::size_t nranks) {
  return e == Part::kAll ? nranks : e == Part::kOne ? 1 : 0;
}

struct Footprint {
  Part in = Part::kNothing, out = Part::kNothing;
};

// The footprint on the root, and on every rank of a collective without a root.
constexpr Footprint footprint(Collective c) {
  using enum Part;
  switch (c) {
    case Collective::kAllReduce:
    case Collective::kBroadcast:
    case Collective::kReduce:
      return {kOne, kOne};
    case Collective::kAllGather:
    case Collective::kGather:
      return {kOne, kAll};
    case Collective::kReduceScatter:
    case Collective::kScatter:
      return {kAll, kOne};
    case Collective::kAllToAll:
      return {kAll, kAll};
    case Collective::kBarrier:
    case Collective::kSendRecv:
      break;
  }
  return {};
}

// Whether the root sends data to the other ranks; in the other rooted collectives the root
// receives.
constexpr bool from_root(Collective c) {
  return c == Collective::kBroadcast || c == Collective::kScatter;
}

// The footprint on one rank.
constexpr Footprint footprint(Collective c, Rank rank, Rank root) {
  Footprint f = footprint(c);
  if (rooted(c) && rank != root) (from_root(c) ? f.in : f.out) = Part::kNothing;
  return f;
}

}  // namespace weft
