// Translates options of other tools to weft's. Parses nothing.
#pragma once

#include <CLI/CLI.hpp>
#include <string>
#include <vector>

namespace weft {

// Lets scripts for nccl-tests and perftest run: replaces their options in a command line of
// `weft perf` by weft's equivalents, and removes those without an equivalent, with their values.
// Returns a warning for each removed option, and for -N if it is likely meant as nccl-tests'.
std::vector<std::string> take_foreign(std::vector<char*>& arguments);

// Returns a sentence that says what to type instead of an option that this command does not have:
// "ranks are -N". Empty if the option is unknown.
std::string spelling_here(const CLI::App& command, const std::string& typed);

// Returns the command that corresponds to a program of nccl-tests or perftest, or to a collective
// typed as a command: "weft perf all_reduce". Empty if there is none.
std::string command_for(const std::string& program);

}  // namespace weft
