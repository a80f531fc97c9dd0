// The commands of `weft`. Each file perf/*/NAME_cmd.cc adds its command to the command line.
#pragma once

#include <CLI/CLI.hpp>

#include "topo/base/exit_code.h"

namespace weft {

// Each function adds one command. The command's callback stores the exit code in `exit_code`.
void add_topo(CLI::App& app, int& exit_code);
void add_launch(CLI::App& app, int& exit_code);
void add_perf(CLI::App& app, int& exit_code);
void add_pair_tests(CLI::App& perf, int& exit_code);  // adds commands below `weft perf`
void add_explain(CLI::App& app, int& exit_code);
void add_validate(CLI::App& app, int& exit_code);
void add_sim(CLI::App& app, int& exit_code);
void add_replay(CLI::App& app, int& exit_code);
void add_lab(CLI::App& app, int& exit_code);
void add_softroce(CLI::App& lab, int& exit_code);  // adds a command below `weft lab`
void add_doctor(CLI::App& app, int& exit_code);
void add_trace(CLI::App& app, int& exit_code);
void add_tune(CLI::App& app, int& exit_code);
void add_drain(CLI::App& app, int& exit_code);

}  // namespace weft
