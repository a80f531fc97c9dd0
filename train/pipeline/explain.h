// Prints a pipeline schedule as a table for people.
#pragma once

#include <string>

#include "train/pipeline/schedule.h"

namespace weft::train {

// Returns one line per step of the logical clock: each rank's computation, the messages sent after
// it, and the share of active ranks. Below follow the bubble by the simulator and by the formula,
// the micro-batches that each rank holds, and the checker's result. The text ends with a newline.
std::string explain_pipeline(const PipelineSchedule& schedule);

}  // namespace weft::train
