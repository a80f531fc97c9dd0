// The run of one rank of `weft train`.
#pragma once

#include "train/cli/train_flags.h"

namespace weft {

// Trains a GPT on this rank, as complete flags say; returns the exit code.
int run_as(World& world, const TrainFlags& flags);

}  // namespace weft
