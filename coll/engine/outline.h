// The outline of a schedule: how many messages, chunks and hops a round of it has, and how much
// scratch. It does not contain sizes in bytes, rates or addresses.
//
// Both ends of a message must cut it alike, so whatever decides the slices must be the same on
// every rank. Schedules differ from rank to rank; every rank uses the outline of rank 0's schedule.
#pragma once

#include <functional>

#include "coll/schedule/algorithm.h"
#include "coll/schedule/schedule.h"

namespace weft {

struct Outline {
  int per_host = 0;  // ranks of the largest host; 0: no outline
  // Dependent messages, along the longest path of a chunk through the round.
  int rail_hops = 0, host_hops = 0;
  int rail_messages = 0, host_messages = 0;  // sent and received by one rank
  // Chunks in these messages: the larger of the number sent and the number received.
  int rail_chunks = 0, host_chunks = 0;
  int reduced_chunks = 0;  // chunks received by one rank that are reduced
  // In the packed layout: the chunks that a rank copies to and from its packed copy, and those of
  // them that it copies before its first message.
  int copied_chunks = 0, copied_first = 0;
  // Whether most of the traffic inside the host is concurrent with traffic along rails.
  bool together = false;
  // Whether contributions first go straight from one host to others along rails (kDirectChannel),
  // and results back afterwards.
  bool direct = false;
  // Chunks of scratch: arrivals from other hosts that wait to be reduced and, in the block layout,
  // values that the rank only forwards.
  int scratch_chunks = 0;
  int least_scratch = 0;   // least of any rank's; such a rank may have more rounds in flight
  bool hops_known = true;  // false: a rooted schedule that does not declare its hops
  bool crossing = false;   // chunks take several paths at once, and messages wait for each other
};

// The rank whose schedule is outlined: rank 0; for a gather or a scatter the root, which has the
// most work; for a broadcast or a reduce, if the root's host has less work than others, the first
// rank that is not on that host.
Rank outlined_rank(Collective collective, const Shape& shape);
// `one` is the schedule of outlined_rank(). `split`: every message moves one chunk. If not,
// messages of blocks are packed. Chunks count by their weights.
Outline outline_of(const Schedule& one, Collective collective, const Shape& shape, bool split);
// The same for the schedules that build(rank) returns. In an all_reduce with slow ports, each count
// is the largest among the ranks of slow hosts and of the first and last other host.
Outline outline_of(Collective collective, const Shape& shape, bool split,
                   const std::function<Schedule(Rank)>& build);

}  // namespace weft
