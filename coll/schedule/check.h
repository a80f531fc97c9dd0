// The checker: proves that the schedules of all ranks together implement the collective.
//
// The checker depends only on schedules. It builds the graph of all ranks' steps (data hazards,
// matched transfers, finite credits per channel), executes the graph with symbolic contributions,
// and reports the first fault.
#pragma once

#include <span>
#include <string>

#include "coll/schedule/schedule.h"
#include "coll/types.h"

namespace weft {

struct CheckOptions {
  // Number of messages that a channel (ordered pair of ranks, channel) buffers before the receiver
  // takes them. 0: synchronous, a send completes only when its receive does.
  int credits = 0;
  Rank root = 0;
  // Every result must come from one reduction over all ranks, which the engine runs in rank order:
  // Shape::deterministic promises this.
  bool canonical = false;
};

// Returns an empty string if the schedules are correct, otherwise a sentence about the first fault:
// the rank, the step, the chunk, and the expected value. schedules[r] belongs to rank r.
std::string check(Collective collective, std::span<const Schedule> schedules,
                  const CheckOptions& options = {});

}  // namespace weft
