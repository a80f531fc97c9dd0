// The run of one rank of `weft train`.
#pragma once

#include "train/cli/train_flags.h"

namespace weft {

// Trains a GPT on this rank. `flags` must be complete. Returns the exit code.
int run_as(World& world, const TrainFlags& flags);

}  // namespace weft
