// A schedule says what one rank does in one collective, independent of bytes, pointers and NICs.
//
// A schedule is a list of steps over chunks. Two steps of a rank are ordered iff they touch a
// common chunk and one of them writes it; the i-th send to a peer on a channel matches the i-th
// receive of that peer from us on that channel. The engine executes schedules, the checker proves
// them, the simulator times them, `weft explain` prints them.
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
  kSend,        // send the current value of the chunks to the peer
  kRecv,        // overwrite the chunks with what the peer sends
  kRecvReduce,  // combine what the peer sends into the chunks
};

const char* name(Op op);  // "send", "recv", "recv_reduce"

// A contiguous range of chunks [first, first + count).
struct Chunks {
  int first = 0;
  int count = 0;
  // Returns the i-th of n parts, as equal as possible (the first count % n parts have one chunk
  // more). i is taken modulo n, and may be negative.
  Chunks part(int i, int n) const;
  int end() const { return first + count; }
  bool operator==(const Chunks&) const = default;
};

// Channels between two ranks. A send matches only receives on its own channel.
inline constexpr int kChannels = 8;

struct Step {
  Op op;
  Rank peer;    // rank within the communicator
  int channel;  // below kChannels
  Chunks at;
  // The step shares a message with the previous step, which has the same op, peer and channel: this
  // saves messages where their number counts. A recv_reduce is never joined. The engine sends the
  // steps of a large message one by one.
  bool joined = false;
  bool operator==(const Step&) const = default;
};

struct Schedule {
  Rank rank = 0;
  int nranks = 1;
  int nchunks = 1;
  std::vector<Step> steps;
  // all_gather, reduce_scatter, gather, scatter: chunk c is a piece of the block of rank block[c].
  // all_to_all: chunk c is a piece of the block that rank block[c] / n has for rank block[c] % n.
  // The chunks of one block lie in the block in ascending order. Empty: chunk c is block c.
  // all_reduce, reduce and broadcast do not use it: their chunks are contiguous in the message.
  std::vector<int> block;
  // Relative sizes of the chunks within the message (all_reduce, broadcast) or within their block.
  // Empty: equal. A slow rail's chunks get a smaller weight.
  std::vector<double> weight;
  // The place in scratch of each chunk that this rank only forwards, if chunks share places (-1: a
  // place of its own): a chunk arrives after the previous one in its place has left. Empty: no
  // chunks share. For the block layout only; the number of places is the same on all ranks.
  std::vector<int> place;
  // Some rank moves several chunks in one step, even if this rank does not: the engine then runs
  // small messages of blocks packed (coll/engine/plan.h). The same on all ranks; an algorithm whose
  // ranks all have the same pattern of steps need not set it.
  bool packs = false;
  // The longest chain of messages between hosts that a chunk takes, if ranks differ and no rank's
  // own steps show it. 0: rank 0's steps show it. The same on all ranks.
  int rail_hops = 0;

  // Adds a send. This and the calls below add nothing if `at` is empty or `peer` is this rank.
  // `joined` is dropped if the previous step has another op, peer or channel.
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
  int me = 0;  // index of this rank in `ranks`
  int size() const { return static_cast<int>(ranks.size()); }
  Rank at(int i) const;  // ranks[i mod size], i may be negative
};

// Returns the end of the reduction that begins with step i, a recv_reduce. Steps i ... end - 1 are
// one reduction over all their sources and the rank's own value: they are adjacent, on one
// channel, into the same chunks, from different peers.
std::size_t reduction_end(const Schedule& schedule, std::size_t i);

// "rank 0 of 4, 4 chunks\n  0 send  -> 1  chunks [3,4)  channel 0\n ..."
std::string to_string(const Schedule& schedule);
std::uint64_t hash(const Schedule& schedule);

}  // namespace weft
