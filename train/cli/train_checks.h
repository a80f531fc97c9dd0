// Checks the flags of `weft train` before any rank starts, and refuses bad combinations by name.
#pragma once

#include <functional>
#include <string>

#include "train/cli/train_flags.h"

namespace weft {

// Throws UsageError, with a remedy, where the user gave a flag that this training would ignore or
// cannot do. `command` has the options of add_train_flags(); `flags` has the sizes of all axes, and
// the backend and type that are chosen.
void check_train_flags(const CLI::App& command, const TrainFlags& flags);

// The same for --model ffn, which takes --steps and the options of ranks.
void check_ffn_flags(const CLI::App& command);

// Parts of the same, for other commands: an algorithm of all_reduce; the options of
// add_checkpoint_flags().
void check_algorithm_of_sums(const std::string& algorithm);
void check_checkpoint_flags(const CLI::App& command, const CheckpointFlags& flags);

// Calls check(), which every rank of a job finds to fail: one rank throws, the others return
// kExitError. Returns kExitOk where nothing is wrong.
int one_rank_tells(const std::function<void()>& check);

// Throws Error where --save or --trace cannot be written, so that the run does not fail at its
// first checkpoint. Makes the folder of --save.
void check_train_folders(const std::string& save, const std::string& trace);

}  // namespace weft
