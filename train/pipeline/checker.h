// Proves that a pipeline schedule computes a training step on all ranks together. The checker knows
// schedules only.
#pragma once

#include <string>
#include <vector>

#include "train/pipeline/schedule.h"

namespace weft::train {

// Returns an empty text when the schedule is right, else one sentence about the first fault: rank,
// action, and the expected action. The checker proves that
//   - every rank does F, B, W of every micro-batch on each of its stages exactly once, in this
//     order, after their inputs have arrived or been computed, and nothing else;
//   - W of a stage are in the order of micro-batches, so that gradients have the same bits in all
//     schedules;
//   - every result is sent once, after its computation; the i-th receive from a rank names that
//     rank's i-th send;
//   - no rank waits for ever, where the runtime holds what was sent until it is received.
std::string check(const PipelineSchedule& schedule);

// Returns for each rank the most pairs of micro-batch and stage that it keeps between F and W.
std::vector<int> peak_held(const PipelineSchedule& schedule);

}  // namespace weft::train
