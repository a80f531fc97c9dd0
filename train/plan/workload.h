// Writes what the planner says that ranks send each other as a workload that `weft replay` plays.
#pragma once

#include <string>

#include "train/plan/plan.h"

namespace weft::train {

// Returns one step of the layout as a SimAI workload: a text that stands for all ranks. A line is a
// half of a block (attention, feed-forward) of one micro-batch: the time of its forward pass, its
// input gradient and its weight gradient in ns, each with the call that follows it. Sizes are those
// of predict(), of the rank that sends the most; the embedding and the head are left out. Throws
// Error where one rank is the whole job. Format: AICB of https://github.com/aliyun/SimAI.
std::string simai_workload(const ModelShape& model, const Layout& layout);

}  // namespace weft::train
