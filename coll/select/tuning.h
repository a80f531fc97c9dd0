// Holds every constant that tunes the collectives, with its reason, and the decisions that follow
// from the constants.
#pragma once

#include <chrono>
#include <cstddef>

#include "coll/engine/engine.h"
#include "coll/engine/plan.h"

namespace weft {

struct Tuning {
  // On a board, messages that every rank reads whole beat messages that are cut, while all copies
  // together stay in the second-level cache.
  std::size_t board_read_bytes = 128u << 10;

  // Slices inside a host: small enough that a slice just reduced is still in cache when it is
  // sent, large enough that a step (about 100 ns) does not show.
  std::size_t host_slice_min = 8u << 10;
  std::size_t host_slice_max = 128u << 10;
  int host_rounds_per_message = 2;

  // Slices on a network: long enough for the system call, short enough to keep the pipe filled.
  std::size_t rail_slice_min = 16u << 10;
  std::size_t rail_slice_max = 64u << 10;
  int rail_rounds_per_message = 8;

  // From this size on a message is far larger than the caches: non-temporal stores pay.
  std::size_t streaming_bytes = 16u << 20;

  // Backoff: polls before the first yield, yields before the first block, and the longest block
  // where nothing can wake the rank.
  int spins = 2000, spins_oversubscribed = 1;
  int yields = 2000;
  std::chrono::microseconds nap{200};
};

// Returns how to cut a message of a plan: the same on every rank, as it depends on nothing local.
Slicing slicing_for(const Tuning& tuning, const Plan& plan, std::size_t total_bytes);

}  // namespace weft
