// Translates options of other tools to weft's. Parses nothing.
#pragma once

#include <CLI/CLI.hpp>
#include <string>
#include <vector>

namespace weft {

// Supports scripts for nccl-tests and perftest: replaces their options of a `weft perf` command
// line by weft's equivalents, and removes options without an equivalent, with their values. Returns
// a warning for each removed option, and for -N if the user probably means nccl-tests' -N.
std::vector<std::string> take_foreign(std::vector<char*>& arguments);

// Returns a sentence with the equivalent of an option that the command lacks: "ranks are -N". Empty
// if the option is unknown.
std::string spelling_here(const CLI::App& command, const std::string& typed);

// Returns the command that corresponds to a program of nccl-tests or perftest, or to a collective
// typed as a command: "weft perf all_reduce". Empty if no such command exists.
std::string command_for(const std::string& program);

}  // namespace weft
