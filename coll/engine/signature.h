// A signature is what the ranks of a communicator must agree on to run one task; a
// disagreement() is the error when they do not.
//
// A signature is a Head (transport/transport.h): it is sent with the first message of each channel,
// and lies beside a message on a board. Two calls that differ in anything below have different
// signs, so they end in an error that shows both sides, not in a hang or in wrong data.
#pragma once

#include <cstdint>
#include <span>
#include <string>

#include "coll/call_descriptor.h"
#include "coll/engine/engine.h"
#include "coll/types.h"
#include "topo/base/status.h"
#include "transport/transport.h"

namespace weft {

struct Plan;
struct Algorithm;

// about[0]: count. about[1]: communicator (24 bits), sequence (40 bits). about[2]: collective,
// type, operator (with the codec), algorithm + 1 (8 bits each), root (31 bits), 1 bit for a vector
// collective.
// about[3]: elements of a round (32 bits), hash of the plan (32 bits).
//
// In a vector collective about[0] is the sum of the counts (40 bits) and a digest of the counts
// (24 bits). An all_to_all_v, where only two ranks know each size, has a signature for every
// ordered pair: about[0] is the count, and the root is the world rank that receives.
inline constexpr int kSignatureSequenceBits = 40;
inline constexpr std::uint64_t kSignatureSequenceMask =
    (std::uint64_t{1} << kSignatureSequenceBits) - 1;

// Packs about[1].
constexpr std::uint64_t place_of(std::uint32_t communicator, std::uint64_t sequence) {
  return static_cast<std::uint64_t>(communicator) << kSignatureSequenceBits |
         (sequence & kSignatureSequenceMask);
}

// Returns the signature of a call, unsealed: seal() computes its sign. `sequence` is the number of
// the collective in the communicator, or of the message from its sender to its receiver; the `root`
// of a message is its receiver.
inline Head signature(Collective c, const Call& call, Rank root, std::uint32_t communicator,
                      std::uint64_t sequence) {
  const bool empty = c == Collective::kBarrier;  // a barrier has no other arguments
  const auto part = [](bool given, auto value, int shift) {
    return given ? static_cast<std::uint64_t>(value) << shift : 0;
  };
  return {.sign = 1,
          .about = {empty ? 0 : call.count, place_of(communicator, sequence),
                    static_cast<std::uint64_t>(c) | part(!empty, call.type, 8) |
                        part(reduces(c), call.op, 16) | part(!empty, call.codec, 20) |
                        static_cast<std::uint64_t>(static_cast<std::uint32_t>(root)) << 32,
                    0}};
}

inline constexpr std::uint64_t kAlgorithmBits = std::uint64_t{0xff} << 24,  // of about[2]
    kCodecBits = std::uint64_t{3} << 20;
inline constexpr std::uint64_t kUnevenBit = std::uint64_t{1} << 63;  // a vector collective
// Bits of about[2], above the operator. kLaneBit: the call is on device memory or ordered by a
// stream, the same on all ranks. kDeviceBit: this rank's buffers are device memory; may differ.
inline constexpr std::uint64_t kLaneBit = std::uint64_t{1} << 23, kDeviceBit = kLaneBit >> 1;

// Returns the signature of a vector collective, unsealed. In an all_to_all_v it describes what `me`
// (a world rank) receives from a rank that sends it nothing: see pair_signature().
Head uneven_signature(Collective c, const Call& call, Rank root, Rank me,
                      std::uint32_t communicator, std::uint64_t sequence);
inline bool is_vector(const Head& head) { return head.about[2] & kUnevenBit; }
// Whether every pair of ranks has its own signature, as in an all_to_all_v.
bool by_pairs(const Head& head);
// Returns the sealed signature of the `count` elements that `receiver` (a world rank) gets from one
// rank in the all_to_all_v `call`.
Head pair_signature(const Head& call, Rank receiver, std::uint64_t count);
// Returns the receiver of a message or of a pair, otherwise the root.
Rank root_of(const Head& head);

// Adds the other values that must be equal on all ranks: the algorithm (an index into algorithms();
// -1 for a board), the common_hash() of all ranks' plans, and the number of elements of the message
// per round.
inline void add_cut(Head& head, int algorithm, std::uint32_t plan, std::uint64_t elements) {
  head.about[2] |= static_cast<std::uint64_t>((algorithm + 1) & 0xff) << 24;
  head.about[3] = (elements & 0xffffffffu) << 32 | plan;
}

// Sets the sign: a hash of the rest of the head, never 0.
inline void seal(Head& head) {
  const auto mix = [](std::uint64_t x) { return x ^ x >> 32; };
  // Four products run in parallel, so sealing takes a few nanoseconds.
  const std::uint64_t x = mix((head.about[0] ^ 0x243f6a8885a308d3u) * 0x9e3779b97f4a7c15u) +
                          mix((head.about[1] ^ 0x13198a2e03707344u) * 0xc2b2ae3d27d4eb4fu) +
                          mix((head.about[2] ^ 0xa4093822299f31d0u) * 0x165667b19e3779f9u) +
                          mix((head.about[3] ^ 0x082efa98ec4e6c89u) * 0xd6e8feb86659fd93u);
  const std::uint64_t sign = mix(x * 0xbf58476d1ce4e5b9u);
  head.sign = sign ? sign : 1;
}

// Hashes what the plans of all ranks have in common. first: hash() of the schedule of the
// communicator's rank 0, which every rank can build and which represents the steps of all ranks.
std::uint32_t common_hash(const Plan& plan, std::uint64_t first);

// Whether both heads have the same communicator and sequence number.
inline bool same_place(const Head& a, const Head& b) { return a.about[1] == b.about[1]; }

// "all_reduce #124: rank 3 passed 1024 x float32, rank 5 passed 2048 x float32". The ranks are
// world ranks; the lower one comes first. counts_a: the counts that rank_a passed to a vector
// collective, used to find the one that differs; may be empty. For equal heads the text says that
// rank_b sent rank_a a message that rank_a's schedule does not expect.
std::string disagreement(Rank rank_a, const Head& a, Rank rank_b, const Head& b,
                         std::span<const std::size_t> counts_a = {});

}  // namespace weft
