// The trainer's subcommands of `weft`; each sets the program's exit code.
#pragma once

#include <CLI/CLI.hpp>

namespace weft {

// Adds `weft train`, which trains a model on many ranks (train_cmd.cc).
void add_train(CLI::App& app, int& exit_code);
// Adds `weft spiral`, which trains a small network (spiral_cmd.cc).
void add_spiral(CLI::App& app, int& exit_code);
// Adds `weft pipeline explain` and `weft pipeline bubbles` (pipeline_cmd.cc).
void add_pipeline(CLI::App& app, int& exit_code);
// Adds `weft bench kernels` (kernels_cmd.cc).
void add_kernels(CLI::App& bench, int& exit_code);
// Adds `weft plan`, which ranks layouts for a model and a cluster (plan_cmd.cc).
void add_plan(CLI::App& app, int& exit_code);
// Adds `weft cost`, which prints the energy and the price of a run (cost_cmd.cc).
void add_cost(CLI::App& app, int& exit_code);

}  // namespace weft
