// `weft completion`: what a shell, or a test, wants to know of all commands and options.
#pragma once

#include <CLI/CLI.hpp>
#include <nlohmann/json.hpp>
#include <string>

namespace weft {

// Returns every command below `app` and every option of it, for programs (weft.options/1).
nlohmann::ordered_json options_of(const CLI::App& app);

// Returns a script for bash, made from the definitions of the options.
std::string bash_completion(const CLI::App& app);

// Adds `weft completion bash|json`, which prints one or the other. To be called last.
void add_completion(CLI::App& app, int& exit_code);

}  // namespace weft
