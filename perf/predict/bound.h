// The lower bound of a collective's time on a topology, for any algorithm.
//
// Pure functions; perf/collective/rates.h measures the rates. The bound ignores latency: for small
// messages it is far below any reachable time, and of_bound is near 0.
#pragma once

#include <cstdint>
#include <string>

#include "coll/machine.h"
#include "coll/schedule/algorithm.h"
#include "coll/types.h"

namespace weft {

struct RailRate {
  double gbps = 0;  // rate of one rail, one way; 0: unknown
  bool declared =
      false;  // true: a link rate, payload_share of it payload; false: measured payload
  double payload_share = kTcpPayloadShare;  // if declared
};

// Returns the minimum microseconds over the rails: share * bytes / (rails * payload rate). `share`:
// the part of the message that must leave a host, 2(H-1)/H for all_reduce, (H-1)/H for all_gather,
// reduce_scatter, gather, scatter and all_to_all (with the message of all ranks of a host), 1 for
// broadcast, reduce and sendrecv; for unequal hosts see lower_bound_us() (cost.h). Returns 0 if no
// byte must cross (one host, barrier) or the rate is unknown.
double rail_bound_us(Collective collective, const Shape& shape, std::uint64_t bytes, int rails,
                     RailRate rate);

// Bandwidth of this machine's memory in GB/s of result bytes per rank while writing_ranks() ranks
// write concurrently, with ordinary or non-temporal stores, whichever is faster.
struct MemoryRate {
  double copy_GBps = 0;    // a[i] = b[i]
  double reduce_GBps = 0;  // a[i] = b[i] + c[i]
};

// Returns how many ranks must write the bytes that memory_bound_us() counts: only the root of a
// gather or reduce, all but the root of a broadcast in place, otherwise all.
int writing_ranks(Collective collective, int nranks, bool in_place);

// Returns the minimum microseconds in which, on one host, each writing rank can write its bytes. An
// all_reduce of S bytes over n ranks reduces S/n and copies S(n-1)/n on each rank; an all_gather
// copies the bytes that are not in place.
double memory_bound_us(Collective collective, std::uint64_t bytes, int nranks, bool in_place,
                       MemoryRate rate);

}  // namespace weft
