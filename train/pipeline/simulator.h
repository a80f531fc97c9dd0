// How long a pipeline schedule takes, from how long its parts take. Deterministic; no clock. The
// ranks behave as in pipeline/runtime.h: actions in order, sends held until they have gone,
// receives waited for.
#pragma once

#include <cstddef>
#include <vector>

#include "train/pipeline/schedule.h"

namespace weft::train {

// Of one stage and micro-batch, in any one unit of time. With several stages per rank a stage has
// so much less to do: the caller divides.
struct PipelineCosts {
  double forward = 1, backward_input = 1, backward_weight = 1;
  double transfer = 0;  // of a message; those from one rank to another follow each other
  // How much heavier a stage is than the others, by stage; empty: all alike.
  std::vector<double> weight_of_stage = {};
};

struct PipelineEvent {
  Rank rank;
  PipelineAction action;
  double begin, end;
};

struct PipelineTime {
  double time = 0;                    // of one training step, without the optimizer
  std::vector<double> busy;           // of each rank: computing
  double bubble = 0;                  // share of ranks * time in which nothing is computed
  std::vector<PipelineEvent> events;  // all that compute, rank by rank
};

// Throws Error where a rank waits for ever.
PipelineTime simulate(const PipelineSchedule& schedule, const PipelineCosts& costs);

// The steps of the pipeline's logical clock: every F, and every backward pass (B with its W, or B
// and W each where they are apart), takes one step, and what it needs must be done in an earlier
// one. A rank does one thing in a step; where PipelineSchedule::dataflow_steps
// is set it may do an F and a B. Each as early as the rank's order allows.
struct PipelineStep {
  std::vector<std::vector<PipelineAction>> of_rank;
  double active = 0;  // share of ranks that do something
};
std::vector<PipelineStep> steps_of(const PipelineSchedule& schedule);

}  // namespace weft::train
