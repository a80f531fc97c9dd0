// Prints a pipeline schedule as a table.
#pragma once

#include <string>

#include "train/pipeline/schedule.h"

namespace weft::train {

// Returns one line per step of the logical clock: the computation of each rank, the messages sent
// after it, and the share of active ranks. Then the bubble by simulator and formula, the number of
// micro-batches that each rank holds, and the checker's result. Ends with a newline.
std::string explain_pipeline(const PipelineSchedule& schedule);

}  // namespace weft::train
