// The trainer's subcommands of `weft`; each sets the exit code of the program.
#pragma once

#include <CLI/CLI.hpp>

namespace weft {

// `weft train`: trains a model on many ranks (train_cmd.cc).
void add_train(CLI::App& app, int& exit_code);
// `weft plan`: layouts for a model and a cluster, ranked (plan_cmd.cc).
void add_plan(CLI::App& app, int& exit_code);
// `weft cost`: the energy and the price of a run (cost_cmd.cc).
void add_cost(CLI::App& app, int& exit_code);

}  // namespace weft
