// The rail contract: between hosts, a rank talks only to ranks of its own rail.
//
// Rails are networks of their own: from one to another there is at best a detour over the spine,
// where traffic of many meets. Algorithms that are made for rails bring a block for a rank on
// another rail to their neighbour on that rail first, inside the host
// (coll/schedule/hierarchical.cc, all_to_all.cc). Here it is proved of a schedule, whatever its
// algorithm claims.
//
// Pure functions of the shape and so the same on every rank. Shape::rail says who is where; a shape
// without it has one rail, and nothing leaves that.
#pragma once

#include <optional>
#include <string>

#include "coll/schedule/algorithm.h"

namespace weft {

// A step between hosts whose ends are on different rails.
struct RailBreach {
  Rank from = kNoRank, to = kNoRank;  // of the communicator
  int from_rail = 0, to_rail = 0;
  int from_host = 0, to_host = 0;  // index into Shape::hosts
  std::size_t step = 0;            // of the rank `from`
  Chunks at;
  int channel = 0;
  Rank by_way_of = kNoRank;  // the rank of the sender's host on the destination's rail, if any
};

// The first breach in the schedule of one rank.
std::optional<RailBreach> find_breach(const Schedule& schedule, const Shape& shape);
// In those of all ranks.
std::optional<RailBreach> find_breach(const Algorithm& algorithm, const Shape& shape);

// "rank 1 (host 0, rail 1) -> rank 2 (host 1, rail 0): step 4 sends chunks [2,3) on channel 0; on
// its rail it would go 1 -> 0 (inside host 0) -> 2 (along rail 0)"
std::string to_string(const RailBreach& breach);

}  // namespace weft
