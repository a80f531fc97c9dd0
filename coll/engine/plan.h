// A plan is a schedule made ready to run: the steps of one rank as a graph in flat arrays.
//
// The plan says where each value lies (the user's input, output, or scratch) and which node waits
// for which. It is independent of sizes and addresses, so one plan serves every message. The engine
// replays it once per round, a round being one slice of every chunk.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "coll/engine/outline.h"
#include "coll/engine/pieces.h"
#include "coll/schedule/schedule.h"
#include "coll/types.h"

namespace weft {

enum class Where : std::uint8_t { kNowhere, kIn, kOut, kScratch };

struct Node {
  enum class Kind : std::uint8_t {
    kSend,
    kRecv,        // straight to where the chunk's value lies
    kArrive,      // bytes to reduce: lent as a view, or received into a credit of scratch
    kReduce,      // one pass over the current value and all arrivals of the group
    kSendJoined,  // several ranges of chunks in one message; packed layout only
    kRecvJoined,
  };
  Kind kind;
  Where from = Where::kNowhere;  // kSend, kReduce: where the current value is
  Where to = Where::kNowhere;    // kRecv, kReduce: where the new value goes
  std::uint8_t link = 0;         // index of a transport
  bool last = false;             // kRecv, kReduce: no later step of the round reads the value
  bool buffered = false;         // kSend: see Transfer::buffered
  bool stages = false;           // kReduce: all sends of the result use `link`, so that memory of
                                 // that transport lives as long as they need it
  Rank peer = kNoRank;           // world rank
  std::uint32_t ordinal = 0;     // the message's number by peer, channel and direction
  Rank order = 0;                // the peer's rank in the communicator
  std::uint32_t own_place = 0;   // kReduce: number of members with a lower rank
  Chunks at = {};
  std::int32_t result_of = -1;  // kSend: the reduce whose result it sends; kArrive: its reduce
  std::int32_t credit = -1;     // kArrive: scratch to receive into (links without views)
  // kReduce: its arrivals in Plan::members. Joined nodes: their ranges in Plan::ranges.
  std::uint32_t first_member = 0, members = 0;
  std::uint32_t first_successor = 0, successors = 0;  // in Plan::successors
};

// Receives posted ahead on one channel, per round in flight.
inline constexpr int kArrivalsAhead = 2;

// Node::ordinal holds the channel above these bits, which suffice for a ring of 8,192 ranks, where
// a peer gets 2 * 8,191 messages.
inline constexpr int kChannelShift = 14;

struct Link {
  bool views = false;  // the transport lends arrivals
};

struct PlanRequest {
  Collective collective;
  bool network = false;   // the communicator spans hosts: longer slices, the same on every rank
  bool in_place = false;  // input and output are one buffer
  Rank root = 0;          // for rooted collectives
  bool premultiplied = false;   // the input is multiplied by a factor when it is loaded
  std::span<const Rank> world;  // world rank of each rank of the communicator
  std::span<const Link> links;
  std::function<int(Rank peer, int channel)> link_of;  // index into links; peer of the communicator
};

struct Plan {
  // The steps as the engine runs them. In an all_to_all the chunks are renumbered: the plan keeps
  // only those of the n * n blocks that this rank touches, in the same order.
  Schedule schedule;
  Collective collective;
  // Message layout (all_reduce, broadcast, reduce): chunks are contiguous. Block layout (the other
  // collectives): every chunk is a piece of a block, and every step moves one chunk.
  // Packed layout: a round of blocks runs on a copy in chunk order, so that a step over several
  // chunks is one message. A small message is one such round.
  enum class Layout : std::uint8_t { kMessage, kBlocks, kPacked } layout;
  int nchunks = 1;                   // on all ranks together
  std::vector<Piece> pieces;         // by chunk; block and packed layout
  std::vector<int> inputs, results;  // chunks that this rank contributes, and must hold at the end
  // The chunks that a round first copies from the user's input to the memory in which steps change
  // their values. In the message layout one copy moves all of them.
  std::vector<int> stage_in;
  std::vector<Node> nodes;
  std::vector<std::uint16_t> pending;  // per node: the number of nodes it waits for
  std::vector<std::uint32_t> first;    // nodes that wait for nothing
  std::vector<std::uint8_t> links;     // links that the nodes use
  std::vector<std::uint32_t> successors, members;
  std::vector<Chunks> ranges;
  int credits = 0;                       // scratch slots for arrivals, per round in flight
  std::vector<std::int32_t> scratch_of;  // per chunk: the scratch piece of its value, -1: none. In
                                         // the message layout the pieces are contiguous
  int scratch_chunks = 0;
  std::vector<int> copy_last;  // chunks of the result that no step of this rank writes
  bool network = false, premultiplied = false;  // see PlanRequest
  bool own_rail = false;     // chunks have the sizes that their rails can carry: Transfer::own_rail
  Outline outline;           // the same on every rank; set after compile()
  int algorithm = -1;        // index into algorithms(); -1: none of them
  std::uint32_t common = 0;  // see common_hash() in signature.h
  std::uint64_t serial = 0;  // unique in the process, even after the plan is destroyed
};

// Turns a schedule into a plan. `packed` asks for the packed layout of a small message of blocks.
// Throws Error if the schedule sends a value it does not have, or more messages to a rank than
// there are ordinals.
Plan compile(const Schedule& schedule, const PlanRequest& request, bool packed);

}  // namespace weft
