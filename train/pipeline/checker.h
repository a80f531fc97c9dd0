// Verifies that a pipeline schedule computes a complete training step. The checker depends only on
// schedules.
#pragma once

#include <string>
#include <vector>

#include "train/pipeline/schedule.h"

namespace weft::train {

// Returns an empty string if the schedule is correct, otherwise one sentence about the first error:
// rank, action, and the expected action. The checker verifies that
//   - every rank does F, B, W of every micro-batch on each of its stages exactly once, in this
//     order, after their inputs are received or computed, and nothing else;
//   - the Ws of a stage are in the order of micro-batches, so that gradients have the same bits in
//     all schedules;
//   - every result is sent once, after its computation; the i-th receive from a rank matches that
//     rank's i-th send;
//   - no rank deadlocks if the runtime buffers sent messages until they are received.
std::string check(const PipelineSchedule& schedule);

// Returns, per rank, the maximum number of (micro-batch, stage) pairs between F and W.
std::vector<int> peak_held(const PipelineSchedule& schedule);

}  // namespace weft::train
