// The true lower bound of a collective's time: what no algorithm can beat on this topology.
//
// Pure functions; where the rates come from is perf/collective/rates.h's business. Latency is not
// counted: for small messages the bound is far below anything reachable, and of_bound is near 0.
#pragma once

#include <cstdint>
#include <string>

#include "coll/schedule/algorithm.h"
#include "coll/types.h"

namespace weft {

// Share of an Ethernet frame that is payload: TCP at MTU 1500 (1448 of 1514 bytes on the wire, no
// preamble, as a shaper counts).
inline constexpr double kTcpPayloadShare = 1448.0 / 1514.0;
// The same of RoCE v2 at a path MTU of 4096, the largest: 58 bytes of headers and checksum.
inline constexpr double kRocePayloadShare = 4096.0 / (4096 + 58);

struct RailRate {
  double gbps = 0;  // of one rail, one way; 0: unknown
  bool declared =
      false;  // the rate of the link, of which a share is payload; else measured payload
  double payload_share = kTcpPayloadShare;  // where declared
};

// What moving bytes over the rails costs at least: share * bytes / (rails * payload rate), where
// share is the part of the message that must leave a host: 2(H-1)/H for all_reduce, (H-1)/H for
// all_gather, reduce_scatter, gather, scatter and all_to_all (whose message is then that of all
// ranks of a host), 1 for broadcast, reduce and sendrecv; of unequal hosts as lower_bound_us()
// (coll/select/cost.h) has it. 0 where nothing must cross (one host, barrier) or the rate is
// unknown.
double rail_bound_us(Collective collective, const Shape& shape, std::uint64_t bytes, int rails,
                     RailRate rate);

// Bandwidth of this machine's memory in GB/s of result bytes per rank, with writing_ranks() of them
// at it at once, ordinary or non-temporal stores, whichever is faster.
struct MemoryRate {
  double copy_GBps = 0;    // a[i] = b[i]
  double reduce_GBps = 0;  // a[i] = b[i] + c[i]
};

// How many of n ranks must write the bytes that memory_bound_us() counts: the root of a gather or
// reduce alone, all but the root of a broadcast in place, else all.
int writing_ranks(Collective collective, int nranks, bool in_place);

// On one host: what every such rank must write at least. An all_reduce of S bytes over n ranks
// reduces S/n and copies S(n-1)/n on each; all_gather copies what is not already in place.
double memory_bound_us(Collective collective, std::uint64_t bytes, int nranks, bool in_place,
                       MemoryRate rate);

}  // namespace weft
