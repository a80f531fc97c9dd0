// Checks of `weft train` and `weft spiral` before ranks start, and rows of both commands.
#pragma once

#include <functional>
#include <string>

#include "train/cli/options.h"

namespace weft {

// Adds --sync, --staleness and --straggler-us; returns the row of --sync.
OptionTable::Row add_sync(const OptionTable& add, std::string& sync, int& staleness,
                          int& straggler_us);
// Adds --algo; `alone`: the job has one rank.
OptionTable::Row add_algorithm(const OptionTable& add, std::string& algorithm, bool alone);

// Throws UsageError for options that --model ffn ignores: it takes --steps and options of ranks.
void check_ffn_flags(const CLI::App& command);

// Calls check(), which must fail on all ranks of a job or on none. One rank rethrows UsageError,
// the others return kExitError. Returns kExitOk if check() does not throw.
int one_rank_tells(const std::function<void()>& check);

// Throws Error if --save or --trace is not writable, so that the run does not fail at its first
// checkpoint. Creates the folder of --save.
void check_train_folders(const std::string& save, const std::string& trace);

}  // namespace weft
