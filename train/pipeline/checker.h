// Proves that a pipeline schedule does what training needs, on all ranks together. Knows schedules
// and nothing else.
#pragma once

#include <string>
#include <vector>

#include "train/pipeline/schedule.h"

namespace weft::train {

// What a send waits for.
enum class Sends {
  kHeld,        // nothing: its message is kept until the receiver takes it (pipeline/runtime.h)
  kRendezvous,  // its receive, before the next action: plain blocking send and recv
  kCoalesced,   // the same, but sends and receives that follow each other wait together
};

struct PipelineCheckOptions {
  Sends sends = Sends::kHeld;
  // Micro-batches, times stages, that a rank may keep between F and W; 0: any number.
  int max_held = 0;
};

// Empty when the schedule is right, else one sentence about the first fault: rank, action, and what
// was expected. Proved:
//   - every rank does F, B, W of every micro-batch on each of its stages exactly once, in this
//     order, after what they need has arrived or been made, and nothing else;
//   - W of a stage are in the order of micro-batches (gradients are the same bits for all
//   schedules)
//   - every result is sent once, after it was made; the i-th receive from a rank names its i-th
//   send
//   - nobody waits for ever; no rank keeps more than max_held.
std::string check(const PipelineSchedule& schedule, const PipelineCheckOptions& options = {});

// The most micro-batches, times stages, that each rank keeps between F and W at once.
std::vector<int> peak_held(const PipelineSchedule& schedule);

}  // namespace weft::train
