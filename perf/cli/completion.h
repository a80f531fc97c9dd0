// `weft completion`: lists all commands and options, for shells and tests.
#pragma once

#include <CLI/CLI.hpp>
#include <nlohmann/json.hpp>
#include <string>

namespace weft {

// Returns every command below `app` and every option of it, for programs (weft.options/1).
nlohmann::ordered_json options_of(const CLI::App& app);

// Returns a script for bash, made from the definitions of the options.
std::string bash_completion(const CLI::App& app);

// Adds `weft completion bash|json`. Call this after all other commands were added.
void add_completion(CLI::App& app, int& exit_code);

}  // namespace weft
