// The outline of a schedule: how many messages, chunks and hops a round of it has, and how much
// scratch. Knows no bytes, no rates and no addresses.
//
// Both ends of a message cut it alike, so whatever decides the slices must be the same on every
// rank. Schedules differ from rank to rank; the outline is that of rank 0's, on every rank.
#pragma once

#include <functional>

#include "coll/schedule/algorithm.h"
#include "coll/schedule/schedule.h"

namespace weft {

struct Outline {
  int per_host = 0;  // ranks of the largest host; 0: there is no outline
  // Messages that follow from each other, along the longest way of a chunk through the round.
  int rail_hops = 0, host_hops = 0;
  int rail_messages = 0, host_messages = 0;  // what one rank sends and receives
  int rail_chunks = 0, host_chunks = 0;      // in these, one way: the larger of both directions
  int reduced_chunks = 0;                    // of what one rank gets, those to be reduced
  // Whether most of what goes inside the host goes at the same time as what goes along rails.
  bool together = false;
  // Whether what goes along rails first goes straight from one host to others (kDirectChannel), and
  // back after that.
  bool direct = false;
  // Chunks of scratch: arrivals from other hosts that wait to be reduced and, in the block layout,
  // values that the rank only passes on.
  int scratch_chunks = 0;
  int least_scratch =
      0;  // of a rank that needs less than others, and may have more rounds under way
  bool hops_known = true;  // false: a schedule with a root that does not tell
  bool crossing = false;   // chunks take several ways at once, and messages wait for each other
};

// Whose schedule the outline is of: rank 0's. Of a gather or a scatter the root's, who has most to
// do; of a broadcast or a reduce, in which the root's host has less to do than others, that of the
// first rank that is not there.
Rank outlined_rank(Collective collective, const Shape& shape);
// `one` is the schedule of outlined_rank(). `split`: every message moves one chunk. Chunks count by
// their weights.
Outline outline_of(const Schedule& one, Collective collective, const Shape& shape, bool split);
// The same of the schedules that build(rank) returns. In an all_reduce in which hosts have slow
// ports, what is most on one of these, or on the first or the last of the others, counts.
Outline outline_of(Collective collective, const Shape& shape, bool split,
                   const std::function<Schedule(Rank)>& build);

}  // namespace weft
