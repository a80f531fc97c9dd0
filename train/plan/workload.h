// Writes the predicted traffic of a layout as a workload for `weft replay`.
#pragma once

#include <string>

#include "train/plan/plan.h"

namespace weft::train {

// Returns one step of the layout as a SimAI workload, one text for all ranks. A line is half a
// block (attention, feed-forward) of one micro-batch: the times in ns of forward pass, input
// gradient and weight gradient, each with the call after it. Sizes are predict()'s, of the rank
// that sends the most, without embedding and head. Throws Error for a job of one rank. Format: AICB
// of https://github.com/aliyun/SimAI.
std::string simai_workload(const ModelShape& model, const Layout& layout);

}  // namespace weft::train
