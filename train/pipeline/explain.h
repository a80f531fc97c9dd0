// A pipeline schedule as a table for people.
#pragma once

#include <string>

#include "train/pipeline/schedule.h"

namespace weft::train {

// One line per step of the logical clock: what each rank computes, what it then sends, and the
// share of active ranks. Below: the bubble by the simulator and by its formula, what each rank
// holds, and what the checker says. Ends with a newline.
std::string explain_pipeline(const PipelineSchedule& schedule);

}  // namespace weft::train
