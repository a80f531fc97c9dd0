// Checks the flags of `weft train` before any rank starts, and refuses bad combinations by name.
#pragma once

#include "train/cli/train_flags.h"

namespace weft {

// Throws UsageError, with a remedy, where the user gave a flag that this training, or the mode in
// its place (--explain, --bubbles, --bench-kernels), would ignore or cannot do. `command` has the
// options of add_train_flags().
void check_train_flags(const CLI::App& command, const TrainFlags& flags);

// Throws Error where --save or --trace cannot be written, so that the run does not fail at its
// first checkpoint. Makes the folder of --save.
void check_train_folders(const TrainFlags& flags);

}  // namespace weft
