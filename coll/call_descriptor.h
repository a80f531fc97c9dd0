// One call as its rank made it: which collective or message of which communicator, and with what
// arguments. The flight recorder, traces, the diagnosis of hangs and the errors of ranks that
// disagree all speak of a call in these words.
//
// Two formats carry it in fewer bytes: the head that travels with messages (signature.h) and the
// record in shared memory (recorder.h).
#pragma once

#include <cstdint>
#include <string>

#include "coll/types.h"
#include "topo/base/status.h"

namespace weft {

struct CallDescriptor {
  // The communicator: ranks mean the same one where all three are equal.
  std::uint32_t comm = 0;
  Rank leader = 0;             // the world rank of its rank 0
  int members = 0;             // 0: not known
  std::uint64_t sequence = 0;  // of the collectives; of the messages to, or from, this peer
  Collective collective = Collective::kBarrier;
  bool is_vector = false;    // with blocks of different sizes; count is their sum
  std::uint32_t digest = 0;  // vector: of all counts, where all ranks pass the same ones
  // On device memory, or in the order of a stream: where each rank's buffers are may differ. A
  // replay of what was captured is counted apart.
  bool lane = false, on_device = false, replay = false;
  bool message = false;  // point to point: root is the peer's world rank, count is bytes
  bool sends = false;    // message: a send
  DType type = DType::kFloat32;
  RedOp op = RedOp::kSum;
  Rank root = 0;  // as the caller passed it
  std::uint64_t count = 0;

  bool same_call(const CallDescriptor& other) const {
    return comm == other.comm && leader == other.leader && members == other.members &&
           message == other.message && replay == other.replay && sequence == other.sequence;
  }
  // The count in one word: of a vector call counts_word().
  std::uint64_t word() const;
  void set_word(std::uint64_t word);
};

// Whether each pair of ranks agrees on sizes of its own.
constexpr bool by_pairs(const CallDescriptor& c) {
  return c.is_vector && c.collective == Collective::kAllToAll;
}

// How a vector call's counts are told in one word: their sum, and above it a digest of them.
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

// Calls visit(key, field) for every field, with the key that JSON has for it.
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
  visit("root", c.root);
  visit("count", c.count);
}

// "float32": with the width in the name, whatever tools call the type.
std::string type_name(DType type);
// "all_reduce #124", "all_gather_v #125", "send #3 to rank 5"
std::string title(const CallDescriptor& c);
// The title with the communicator, where that is not the whole job.
std::string full_title(const CallDescriptor& c);
// "1024 x float32"; "1024 bytes" of a message
std::string quantity(const CallDescriptor& c);
// "1024 x float32, sum"; "1024 x float32, root 2". digest: with that of a vector call's counts.
std::string arguments(const CallDescriptor& c, bool digest = true);

}  // namespace weft
