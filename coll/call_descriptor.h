// One call as its rank made it: the communicator, the collective or message, and the arguments. The
// flight recorder, traces, the diagnosis of hangs and mismatch errors all print it.
//
// Two formats pack a descriptor into fewer bytes: the head of messages (signature.h) and the record
// in shared memory (recorder.h).
#pragma once

#include <cstdint>
#include <string>

#include "coll/types.h"
#include "topo/base/status.h"

namespace weft {

struct CallDescriptor {
  // Two ranks name the same communicator if its id, leader and size are equal.
  std::uint32_t comm = 0;
  Rank leader = 0;             // the world rank of the communicator's rank 0
  int members = 0;             // the communicator's size; 0: not known
  std::uint64_t sequence = 0;  // counts the collectives, or the messages to (or from) the peer
  Collective collective = Collective::kBarrier;
  bool is_vector = false;    // blocks have different sizes; count is the sum of the block counts
  std::uint32_t digest = 0;  // vector: hash of all counts, if all ranks pass the same counts
  // lane: a GPU lane runs the call. on_device: this rank's buffers are device memory. replay: a
  // graph repeats a captured call; replays have sequence numbers of their own.
  bool lane = false, on_device = false, replay = false;
  bool message = false;  // point to point: root is the peer's world rank, count is in bytes
  bool sends = false;    // message: this rank is the sender
  DType type = DType::kFloat32;
  RedOp op = RedOp::kSum;
  Codec codec = Codec::kNone;
  Rank root = 0;  // the root that the caller passed, a rank of the communicator
  std::uint64_t count = 0;

  bool same_call(const CallDescriptor& other) const {
    return comm == other.comm && leader == other.leader && members == other.members &&
           message == other.message && replay == other.replay && sequence == other.sequence;
  }
  // Packs the counts: counts_word() if all ranks of a vector call pass the same counts, else
  // `count`.
  std::uint64_t word() const;
  // Unpacks a word() into `count` and `digest`; `is_vector` and `collective` must be set.
  void set_word(std::uint64_t word);
};

// The call with another sequence number and the same arguments.
inline CallDescriptor numbered(CallDescriptor call, std::uint64_t sequence) {
  call.sequence = sequence;
  return call;
}

// Whether only two ranks know a block's size: its sender and its receiver.
constexpr bool by_pairs(const CallDescriptor& c) {
  return c.is_vector && c.collective == Collective::kAllToAll;
}

// Packs the counts of a vector call: their sum in the low bits, a digest of them above the sum.
inline constexpr int kSumBits = 40;
inline constexpr std::uint64_t kSumMask = (std::uint64_t{1} << kSumBits) - 1;
constexpr std::uint64_t counts_word(std::uint64_t sum, std::uint64_t digest) {
  return (sum < kSumMask ? sum : kSumMask) | digest << kSumBits;
}
inline std::uint64_t CallDescriptor::word() const {
  return is_vector && !by_pairs(*this) ? counts_word(count, digest) : count;
}
inline void CallDescriptor::set_word(std::uint64_t word) {
  const bool both = is_vector && !by_pairs(*this);
  count = both ? word & kSumMask : word;
  digest = both ? static_cast<std::uint32_t>(word >> kSumBits) : 0;
}

// Calls visit(key, field) for every field, with the field's key in JSON.
template <class Descriptor, class Visit>
void each_field(Descriptor& c, const Visit& visit) {
  visit("comm", c.comm);
  visit("leader", c.leader);
  visit("members", c.members);
  visit("sequence", c.sequence);
  visit("collective", c.collective);
  visit("uneven", c.is_vector);
  visit("digest", c.digest);
  visit("lane", c.lane);
  visit("on_device", c.on_device);
  visit("replay", c.replay);
  visit("message", c.message);
  visit("sends", c.sends);
  visit("type", c.type);
  visit("op", c.op);
  visit("codec", c.codec);
  visit("root", c.root);
  visit("count", c.count);
}

// The type's name with its width: "float32" when name() returns "float".
std::string type_name(DType type);
// "all_reduce #124", "all_gather_v #125", "send #3 to rank 5"
std::string title(const CallDescriptor& c);
// The title, followed by the communicator unless that is the whole job.
std::string full_title(const CallDescriptor& c);
// "1024 x float32"; for a message "1024 bytes"
std::string quantity(const CallDescriptor& c);
// "1024 x float32, sum"; "1024 x float32, root 2". digest: adds the digest of a vector's counts.
std::string arguments(const CallDescriptor& c, bool digest = true);

}  // namespace weft
