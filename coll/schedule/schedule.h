// A schedule: the steps of one rank in one collective, independent of bytes, pointers and NICs.
//
// A schedule is a list of steps over chunks. Two steps of a rank are ordered iff they touch a
// common chunk and one of them writes it. The i-th send to a peer on a channel matches the peer's
// i-th receive from this rank on that channel. The engine executes schedules, the checker verifies
// them, the simulator predicts their time, `weft explain` prints them.
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
  kRecv,        // overwrite the chunks with the peer's message
  kRecvReduce,  // reduce the peer's message into the chunks
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
  // The step shares a message with the previous step, which has the same op, peer and channel; this
  // reduces the number of messages where it limits performance. A recv_reduce is never joined. In a
  // large message the engine sends each step separately.
  bool joined = false;
  bool operator==(const Step&) const = default;
};

struct Schedule {
  Rank rank = 0;
  int nranks = 1;
  int nchunks = 1;
  std::vector<Step> steps;
  // all_gather, reduce_scatter, gather, scatter: chunk c is a piece of the block of rank block[c].
  // all_to_all: chunk c is a piece of the block that rank block[c] / n sends to rank block[c] % n.
  // The chunks of a block are in ascending order. Empty: chunk c is block c. Not used by
  // all_reduce, reduce and broadcast, whose chunks are contiguous in the message.
  std::vector<int> block;
  // Relative sizes of the chunks within the message (all_reduce, broadcast) or within their block.
  // Empty: all chunks have the same size. The chunks of a slow rail have a smaller weight.
  std::vector<double> weight;
  // The scratch slot of each chunk that this rank only forwards, if chunks share slots (-1: the
  // chunk has its own slot): a chunk arrives after the previous chunk in the slot was sent. Empty:
  // no chunks share a slot. Only for the block layout; all ranks have the same number of slots.
  std::vector<int> place;
  // Some ranks move several chunks in one step, even if this rank does not: the engine then packs
  // the blocks of small messages (coll/engine/plan.h). All ranks set the same value; an algorithm
  // in which all ranks have the same pattern of steps does not need it.
  bool packs = false;
  // The longest chain of messages between hosts that a chunk takes, for schedules in which ranks
  // differ and no single rank's steps contain that chain. 0: it follows from rank 0's steps. All
  // ranks set the same value.
  int rail_hops = 0;

  // Adds a send. Like the functions below, it adds nothing if `at` is empty or `peer` is this rank.
  // `joined` is ignored if the previous step has another op, peer or channel.
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

// An ordered set of ranks that execute a part of a schedule together: the world, a host or a rail.
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
