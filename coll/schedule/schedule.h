// What one rank does in one collective. No bytes, pointers or NICs in here.
//
// A schedule is a list of steps over chunks. Two steps of a rank are ordered iff they touch a
// common chunk and one of them writes it; the i-th send to a peer on a channel meets the i-th
// receive of that peer from us on that channel. The engine executes it, the checker proves it,
// the simulator times it, `weft explain` prints it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "coll/types.h"
#include "topo/base/status.h"

namespace weft {

enum class Op : std::uint8_t {
  kSend,        // hand the current value of the chunks to the peer
  kRecv,        // overwrite the chunks with what the peer sends
  kRecvReduce,  // combine what the peer sends into the chunks
};

const char* name(Op op);  // "send", "recv", "recv_reduce"

// A contiguous range of chunks [first, first + count).
struct Chunks {
  int first = 0;
  int count = 0;
  // The i-th of n parts, as equal as can be (the first count % n parts have one more). i is taken
  // modulo n, and may be negative.
  Chunks part(int i, int n) const;
  int end() const { return first + count; }
  bool operator==(const Chunks&) const = default;
};

// Between two ranks. Their number is part of what tells messages apart.
inline constexpr int kChannels = 8;

struct Step {
  Op op;
  Rank peer;    // rank within the communicator
  int channel;  // below kChannels
  Chunks at;
  // In one message with the step before, which has the same op, peer and channel: for messages so
  // small that their number counts. Not for recv_reduce. Where a message is large the engine sends
  // the steps one by one.
  bool joined = false;
  bool operator==(const Step&) const = default;
};

struct Schedule {
  Rank rank = 0;
  int nranks = 1;
  int nchunks = 1;
  std::vector<Step> steps;
  // all_gather, reduce_scatter, gather, scatter: chunk c is a piece of the block of rank block[c].
  // all_to_all: of the block that rank block[c] / n has for rank block[c] % n. Chunks of one block
  // lie in the block in ascending order. Empty: chunk c is block c. Unused by all_reduce, reduce
  // and broadcast, whose chunks lie one after the other in the message.
  std::vector<int> block;
  // Relative sizes of the chunks within the message (all_reduce, broadcast) or within their block.
  // Empty: equal. A slow rail's chunks get a smaller weight.
  std::vector<double> weight;
  // Some rank moves several chunks at a time, though this one may not: small messages of blocks are
  // run packed (coll/engine/plan.h). The same on all ranks; algorithms in which all ranks do alike
  // need not say so.
  bool packs = false;

  // No step is added when `at` is empty or `peer` is this rank. `joined` holds where the step
  // before is of the same kind, peer and channel.
  void send(Rank peer, Chunks at, int channel = 0, bool joined = false) {
    add(Op::kSend, peer, at, channel, joined);
  }
  void recv(Rank peer, Chunks at, int channel = 0, bool joined = false) {
    add(Op::kRecv, peer, at, channel, joined);
  }
  void recv_reduce(Rank peer, Chunks at, int channel = 0) {
    add(Op::kRecvReduce, peer, at, channel, false);
  }
  Chunks all() const { return {0, nchunks}; }

 private:
  void add(Op op, Rank peer, Chunks at, int channel, bool joined);
};

// An ordered set of ranks that run a part of a schedule together: world, host, rail.
struct Group {
  std::span<const Rank> ranks;
  int me = 0;  // index of this rank
  int size() const { return static_cast<int>(ranks.size()); }
  Rank at(int i) const;  // ranks[i mod size], i may be negative
};

// Steps i ... end - 1, of which i is a recv_reduce, are one reduction over all their sources and
// the rank's own value: they follow each other, on one channel, into the same chunks, from
// different peers.
std::size_t reduction_end(const Schedule& schedule, std::size_t i);

// "rank 0 of 4, 4 chunks\n  0 send  -> 1  chunks [3,4)  channel 0\n ..."
std::string to_string(const Schedule& schedule);
std::uint64_t hash(const Schedule& schedule);

}  // namespace weft
