// The rail contract: between hosts, a rank exchanges only with ranks of its own rail.
//
// Rails are separate networks: traffic between two rails takes a detour over the spine, if any path
// exists, and many flows share the spine. A rail-aware algorithm (coll/schedule/hierarchical.cc,
// all_to_all.cc) first moves a block for a rank on another rail to the local rank on that rail.
//
// The functions of this file are pure functions of the shape, so every rank computes the same
// result. Shape::rail contains each rank's rail; if it is empty, all ranks are on the same rail.
#pragma once

#include <optional>
#include <string>

#include "coll/schedule/algorithm.h"

namespace weft {

// A send between two hosts whose source and destination ranks are on different rails.
struct RailBreach {
  Rank from = kNoRank, to = kNoRank;  // ranks of the communicator
  int from_rail = 0, to_rail = 0;
  int from_host = 0, to_host = 0;  // index into Shape::hosts
  std::size_t step = 0;            // number in the schedule of `from`
  Chunks at;
  int channel = 0;
  Rank by_way_of = kNoRank;  // the rank of the sender's host on the destination's rail, if any
};

// Returns the first breach in the schedule of one rank.
std::optional<RailBreach> find_breach(const Schedule& schedule, const Shape& shape);
// Returns a breach in the schedules of all ranks, host by host. With more than 64 ranks it checks
// only about 30 representative hosts.
std::optional<RailBreach> find_breach(const Algorithm& algorithm, const Shape& shape);

// "rank 1 (host 0, rail 1) -> rank 2 (host 1, rail 0): step 4 sends chunks [2,3) on channel 0; on
// its rail it would go 1 -> 0 (inside host 0) -> 2 (along rail 0)"
std::string to_string(const RailBreach& breach);

}  // namespace weft
