// The run of one rank of `weft train`.
#pragma once

#include <string>

#include "train/cli/train_flags.h"

namespace weft {

// Trains a GPT on this rank, as complete flags say; returns the exit code.
int run_as(World& world, const TrainFlags& flags);

// "run.json" -> "run.pipeline.json"
std::string pipeline_file(const std::string& trace);

}  // namespace weft
