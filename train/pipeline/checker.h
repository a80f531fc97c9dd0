// Proves that a pipeline schedule computes a training step on all ranks together. The checker knows
// schedules only.
#pragma once

#include <string>
#include <vector>

#include "train/pipeline/schedule.h"

namespace weft::train {

// What a send waits for.
enum class Sends {
  kHeld,        // nothing: the runtime keeps the message until the receiver takes it
  kRendezvous,  // the matching receive, before the next action: blocking send and recv
  kCoalesced,   // the matching receive, but consecutive sends and receives wait together
};

struct PipelineCheckOptions {
  Sends sends = Sends::kHeld;
  // Most pairs of micro-batch and stage that a rank may keep between F and W; 0: no limit.
  int max_held = 0;
};

// Returns an empty text when the schedule is right, else one sentence about the first fault: rank,
// action, and the expected action. The checker proves that
//   - every rank does F, B, W of every micro-batch on each of its stages exactly once, in this
//     order, after their inputs have arrived or been computed, and nothing else;
//   - W of a stage are in the order of micro-batches, so that gradients have the same bits in all
//     schedules;
//   - every result is sent once, after its computation; the i-th receive from a rank names that
//     rank's i-th send;
//   - no rank waits for ever, and no rank keeps more than max_held.
std::string check(const PipelineSchedule& schedule, const PipelineCheckOptions& options = {});

// Returns for each rank the most pairs of micro-batch and stage that it keeps between F and W.
std::vector<int> peak_held(const PipelineSchedule& schedule);

}  // namespace weft::train
