// Flags of `weft train` that do not go together: refused by name, before anything starts.
#pragma once

#include "train/cli/train_flags.h"

namespace weft {

// Throws UsageError where a flag was given that this training, or what is asked for instead of one
// (--explain, --bubbles, --bench-kernels), would ignore or cannot do, with what to do instead. The
// options of `command` are those of add_train_flags().
void check_train_flags(const CLI::App& command, const TrainFlags& flags);

// Throws Error where --save or --trace cannot be written: now, not when the first checkpoint is
// due. Makes the folder of --save.
void check_train_folders(const TrainFlags& flags);

}  // namespace weft
