// What `weft train` and `weft spiral` check before a rank starts, and the rows that both have.
#pragma once

#include <functional>
#include <string>

#include "train/cli/options.h"

namespace weft {

// Adds --sync, --staleness and --straggler-us; returns the row of --sync.
OptionTable::Row add_sync(const OptionTable& add, std::string& sync, int& staleness,
                          int& straggler_us);
// Adds --algo; `alone`: there is one rank.
OptionTable::Row add_algorithm(const OptionTable& add, std::string& algorithm, bool alone);

// Throws UsageError for what --model ffn has no use for: it takes --steps and the options of ranks.
void check_ffn_flags(const CLI::App& command);

// Calls check(), which every rank of a job finds to fail: one rank throws, the others return
// kExitError. Returns kExitOk where nothing is wrong.
int one_rank_tells(const std::function<void()>& check);

// Throws Error where --save or --trace cannot be written, so that the run does not fail at its
// first checkpoint. Makes the folder of --save.
void check_train_folders(const std::string& save, const std::string& trace);

}  // namespace weft
