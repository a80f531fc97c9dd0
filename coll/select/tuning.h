// Holds every constant that tunes the collectives, with its reason, and the decisions that follow
// from the constants.
#pragma once

#include <chrono>
#include <cstddef>

#include "coll/engine/engine.h"
#include "coll/engine/plan.h"
#include "coll/select/cost.h"

namespace weft {

struct Tuning {
  // On a board, reading whole messages beats cutting them while the copies of all ranks together
  // fit into the second-level cache.
  std::size_t board_read_bytes = 128u << 10;

  // Slices inside a host: small enough that a slice just reduced is still in cache when it is sent,
  // large enough that a step (about 100 ns) is negligible.
  std::size_t host_slice_min = 8u << 10;
  std::size_t host_slice_max = 128u << 10;
  int host_rounds_per_message = 2;

  // Slices on a network if no schedule shows the length of the chains, and over sockets.
  std::size_t rail_slice_min = 16u << 10;
  std::size_t rail_slice_max = 64u << 10;
  int rail_rounds_per_message = 8;

  // Otherwise on a network the model chooses, within these limits.
  std::size_t model_slice_min = 1u << 10;
  std::size_t model_slice_max = 1u << 20;

  std::size_t passed_on_bytes = 6u << 20;  // per round, if ranks forward chunks

  int rounds_in_flight = 4;  // at least, if the message has as many rounds and scratch has room

  // From this size on a message is far larger than the caches: non-temporal stores pay.
  std::size_t streaming_bytes = 16u << 20;

  // Backoff: polls before the first yield, yields before the first sleep, and the longest sleep
  // when nothing can wake the rank.
  int spins = 2000, spins_oversubscribed = 1;
  int yields = 2000;
  std::chrono::microseconds nap{200};
};

// How a message of a plan is sliced into rounds, and the times that the model predicts.
struct Rounds {
  Slicing slicing;
  double rounds = 1;
  double first_us = 0;  // one round alone
  double stage_us = 0;  // each further round: the busiest port or core
  double time_us = 0;
};
// All three return the same on every rank: they depend on nothing local. rounds_for() is for
// messages between hosts, rounds_in_host() for those inside one, without times. `chunk_bytes`: of a
// chunk of the whole message. `chunks`: their number (of an all_to_all, in one rank's blocks).
Rounds rounds_for(const Tuning& tuning, Collective collective, const Outline& outline,
                  double chunk_bytes, std::size_t chunks, const CostModel& model);
Rounds rounds_in_host(const Tuning& tuning, Collective collective, double chunk_bytes,
                      std::size_t chunks);
Slicing slicing_for(const Tuning& tuning, const Plan& plan, std::size_t total_bytes,
                    const CostModel& model);

}  // namespace weft
