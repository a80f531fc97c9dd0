// Simulates the time of a pipeline schedule from the times of its actions. Deterministic: reads no
// clock. Simulated ranks behave as in runtime.h: they act in order, keep sent messages until
// delivery, and wait for receives.
#pragma once

#include <cstddef>
#include <vector>

#include "train/pipeline/schedule.h"

namespace weft::train {

// Times of one stage and micro-batch, in any unit. With several stages per rank each stage takes
// less time: the caller divides.
struct PipelineCosts {
  double forward = 1, backward_input = 1, backward_weight = 1;
  double transfer = 0;  // time of a message; messages between two ranks do not overlap
  // Factor of each stage's times; empty: 1 for all stages.
  std::vector<double> weight_of_stage = {};
};

struct PipelineTime {
  double time = 0;           // one training step, without the optimizer
  std::vector<double> busy;  // computing time of each rank
  double bubble = 0;         // fraction of (ranks * time) without computation
};

// Throws Error if a rank deadlocks.
PipelineTime simulate(const PipelineSchedule& schedule, const PipelineCosts& costs);

// A step of the pipeline's logical clock. Every F and every backward pass (B with its W, or B and W
// separately if they are apart) takes one step, as early as the rank's order and its inputs allow.
// A rank does one action per step, or an F and a B with PipelineSchedule::dataflow_steps.
struct PipelineStep {
  std::vector<std::vector<PipelineAction>> of_rank;
  double active = 0;  // share of ranks with an action
};
std::vector<PipelineStep> steps_of(const PipelineSchedule& schedule);

}  // namespace weft::train
