// What one rank does in one collective. No bytes, pointers or NICs in here.
//
// A schedule is a list of steps over chunks. Two steps of a rank are ordered iff they touch a
// common chunk and one of them writes it; the i-th send to a peer on a channel meets the i-th
// receive of that peer from us on that channel. The engine executes it, the checker proves it,
// the simulator times it, `weft explain` prints it.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "coll/types.h"
#include "topo/status.h"

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

struct Step {
  Op op;
  Rank peer;  // rank within the communicator
  int channel;
  Chunks at;
  bool operator==(const Step&) const = default;
};

struct Schedule {
  Rank rank = 0;
  int nranks = 1;
  int nchunks = 1;
  std::vector<Step> steps;
  // all_gather and reduce_scatter: chunk c is a piece of the block of rank block[c]. Chunks of one
  // block lie in the block in ascending order. Empty: chunk c is the block of rank c. Unused by
  // all_reduce and broadcast, whose chunks lie one after the other in the message.
  std::vector<int> block;
  // Relative sizes of the chunks within the message (all_reduce, broadcast) or within their block.
  // Empty: equal. A slow rail's chunks get a smaller weight.
  std::vector<double> weight;

  // No step is added when `at` is empty or `peer` is this rank.
  void send(Rank peer, Chunks at, int channel = 0) { add(Op::kSend, peer, at, channel); }
  void recv(Rank peer, Chunks at, int channel = 0) { add(Op::kRecv, peer, at, channel); }
  void recv_reduce(Rank peer, Chunks at, int channel = 0) {
    add(Op::kRecvReduce, peer, at, channel);
  }
  Chunks all() const { return {0, nchunks}; }

 private:
  void add(Op op, Rank peer, Chunks at, int channel);
};

// An ordered set of ranks that run a part of a schedule together: world, host, rail.
struct Group {
  std::span<const Rank> ranks;
  int me = 0;  // index of this rank
  int size() const { return static_cast<int>(ranks.size()); }
  Rank at(int i) const;  // ranks[i mod size], i may be negative
};

// "rank 0 of 4, 4 chunks\n  0 send  -> 1  chunks [3,4)  channel 0\n ..."
std::string to_string(const Schedule& schedule);
std::uint64_t hash(const Schedule& schedule);

}  // namespace weft
