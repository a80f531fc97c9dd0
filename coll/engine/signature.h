// What the ranks of a communicator must agree on to run one operation, and what to say when they
// do not.
//
// A signature is a Head (transport/transport.h): it travels with the first message of each channel,
// and lies beside a message on a board. Two calls that differ in anything below have different
// signs, so they end in an error that shows both sides, not in a hang and not in wrong data.
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
// type, operator, algorithm + 1 (8 bits each), root (31 bits), 1 bit for blocks of different sizes.
// about[3]: elements of a round (32 bits), hash of the plan (32 bits).
//
// Of blocks of different sizes about[0] is the sum of their counts (40 bits) and a digest of them
// (24 bits). An all_to_all_v, where only two ranks know each size, has a signature for every
// ordered pair: about[0] is the count, and the root is the world rank that receives.
inline constexpr int kSignatureSequenceBits = 40;
inline constexpr std::uint64_t kSignatureSequenceMask =
    (std::uint64_t{1} << kSignatureSequenceBits) - 1;

// The arguments of a call, and its place in the communicator: `sequence` is the number of the
// collective, or of the message from its sender to its receiver, `root` the receiver of a message.
// Unsealed: seal() gives it its sign.
inline Head signature(Collective c, const Call& call, Rank root, std::uint32_t communicator,
                      std::uint64_t sequence) {
  const bool empty = c == Collective::kBarrier;  // whose other arguments mean nothing
  const auto part = [](bool given, auto value, int shift) {
    return given ? static_cast<std::uint64_t>(value) << shift : 0;
  };
  return {.sign = 1,
          .about = {empty ? 0 : call.count,
                    static_cast<std::uint64_t>(communicator) << kSignatureSequenceBits |
                        (sequence & kSignatureSequenceMask),
                    static_cast<std::uint64_t>(c) | part(!empty, call.type, 8) |
                        part(reduces(c), call.op, 16) |
                        static_cast<std::uint64_t>(static_cast<std::uint32_t>(root)) << 32,
                    0}};
}

inline constexpr std::uint64_t kUnevenBit = std::uint64_t{1} << 63;  // of about[2]
// Of about[2], above the operator: on device memory or in the order of a stream, which all ranks
// must do alike; and whether this rank's buffers are device memory, which they need not.
inline constexpr std::uint64_t kLaneBit = std::uint64_t{1} << 23, kDeviceBit = kLaneBit >> 1;

// The same of a call with blocks of different sizes; in an all_to_all_v what `me` (a world rank)
// gets from a rank that sends it nothing: see pair_signature().
Head uneven_signature(Collective c, const Call& call, Rank root, Rank me,
                      std::uint32_t communicator, std::uint64_t sequence);
inline bool is_vector(const Head& head) { return head.about[2] & kUnevenBit; }
// Whether every pair of ranks has its own.
bool by_pairs(const Head& head);
// What `receiver` (a world rank) gets in the all_to_all_v of this signature from one rank, sealed.
Head pair_signature(const Head& call, Rank receiver, std::uint64_t count);
// The receiver of a message, or of a pair; otherwise the root.
Rank root_of(const Head& head);

// Adds what else must be equal: the algorithm (an index into algorithms(), -1: on a board), what
// all ranks' plans have in common, and how many elements of the message one round handles.
void add_cut(Head& head, int algorithm, std::uint32_t plan, std::uint64_t elements);

// Computes the sign of all the rest.
inline void seal(Head& head) {
  const auto mix = [](std::uint64_t x) { return x ^ x >> 32; };
  // Four products in parallel, so that it takes a few nanoseconds.
  const std::uint64_t x = mix((head.about[0] ^ 0x243f6a8885a308d3u) * 0x9e3779b97f4a7c15u) +
                          mix((head.about[1] ^ 0x13198a2e03707344u) * 0xc2b2ae3d27d4eb4fu) +
                          mix((head.about[2] ^ 0xa4093822299f31d0u) * 0x165667b19e3779f9u) +
                          mix((head.about[3] ^ 0x082efa98ec4e6c89u) * 0xd6e8feb86659fd93u);
  const std::uint64_t sign = mix(x * 0xbf58476d1ce4e5b9u);
  head.sign = sign ? sign : 1;
}

// What every rank's plan of this collective has in common, as a hash. first: hash() of the schedule
// of the communicator's rank 0, which every rank can build: it stands for the steps of all of them.
std::uint32_t common_hash(const Plan& plan, std::uint64_t first);

// Whether both are of the same communicator and number in its sequence.
inline bool same_place(const Head& a, const Head& b) { return a.about[1] == b.about[1]; }

// "all_reduce #124: rank 3 passed 1024 x float32, rank 5 passed 2048 x float32". The ranks are
// world ranks; the lower one comes first. counts_a: of blocks of different sizes, those that rank_a
// passed, to say which of them differs; may be empty. Of equal heads: that rank_b sent rank_a a
// message that rank_a's schedule does not expect.
std::string disagreement(Rank rank_a, const Head& a, Rank rank_b, const Head& b,
                         std::span<const std::size_t> counts_a = {});

}  // namespace weft
