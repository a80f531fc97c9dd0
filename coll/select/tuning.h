// Contains all tuning constants of the collectives, with reasons, and the decisions that follow
// from them.
#pragma once

#include <chrono>
#include <cstddef>

#include "coll/engine/engine.h"
#include "coll/engine/plan.h"
#include "coll/select/cost.h"

namespace weft {

struct Tuning {
  // On a board, reading whole messages is faster than cutting them if the copies of all ranks
  // together fit into the second-level cache.
  std::size_t board_read_bytes = 128u << 10;

  // Slices within a host: small enough that a slice that was just reduced is still in cache when it
  // is sent, large enough that the cost of a step (about 100 ns) is negligible.
  std::size_t host_slice_min = 8u << 10;
  std::size_t host_slice_max = 128u << 10;
  int host_rounds_per_message = 2;

  // Slices on a network if no schedule determines the length of the chains, and over sockets.
  std::size_t rail_slice_min = 16u << 10;
  std::size_t rail_slice_max = 64u << 10;
  int rail_rounds_per_message = 8;

  // In all other cases on a network, the model selects the slice within these limits.
  std::size_t model_slice_min = 1u << 10;
  std::size_t model_slice_max = 1u << 20;

  std::size_t passed_on_bytes = 6u << 20;  // per round, if ranks forward chunks

  // The minimum number of rounds in flight, if the message has that many and they fit into scratch.
  int rounds_in_flight = 4;

  // From this size on, messages far exceed the caches, and non-temporal stores are faster.
  std::size_t streaming_bytes = 16u << 20;

  // Backoff: polls before the first yield, yields before the first sleep, and the longest sleep if
  // no event can wake the rank.
  int spins = 2000, spins_oversubscribed = 1;
  int yields = 2000;
  std::chrono::microseconds nap{200};
};

// How a message of a plan is sliced into rounds, and the predicted times.
struct Rounds {
  Slicing slicing;
  double rounds = 1;
  double first_us = 0;  // one round alone
  double stage_us = 0;  // time of each further round on the busiest port or core
  double time_us = 0;
  double flowing_us = 0;  // the time if the chunks of a round do not wait for each other
  // Bytes of a round that each rank copies before and after the steps (packed layout).
  double copied_first = 0, copied_last = 0;
};
// All these functions return the same on every rank, since they depend on no local state.
// rounds_for() is for messages between hosts, rounds_in_host() for messages within one host,
// without times. `chunk_bytes`: the size of a chunk of the whole message. `chunks`: the number of
// chunks (of an all_to_all, in one rank's blocks).
Rounds rounds_for(const Tuning& tuning, Collective collective, const Outline& outline,
                  double chunk_bytes, std::size_t chunks, const CostModel& model);
// Whether a message of blocks between hosts runs packed, in rounds, so that all blocks that a rank
// sends to another in a step are one message: `packed` and `blocks` are outlines of the same
// algorithm in the two layouts. may_pack_rounds() is false for collectives and links for which no
// message does.
bool may_pack_rounds(Collective collective, const CostModel& model);
bool packs_rounds(const Tuning& tuning, Collective collective, const Outline& packed,
                  const Outline& blocks, double chunk_bytes, std::size_t chunks,
                  const CostModel& model);
Rounds rounds_in_host(const Tuning& tuning, Collective collective, double chunk_bytes,
                      std::size_t chunks);
Slicing slicing_for(const Tuning& tuning, const Plan& plan, std::size_t total_bytes,
                    const CostModel& model);

}  // namespace weft
