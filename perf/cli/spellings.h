// What options of other tools are called here. This file parses nothing.
#pragma once

#include <CLI/CLI.hpp>
#include <string>
#include <vector>

namespace weft {

// Makes scripts for nccl-tests and perftest run: in the command line of `weft perf`, replaces their
// options by those that mean the same here, and removes the ones that mean nothing, with their
// values. Returns a warning for each that is removed, and for -N where it is likely nccl-tests'.
std::vector<std::string> take_foreign(std::vector<char*>& arguments);

// Returns what to type in place of an option that this command does not have, as a sentence:
// "ranks are -N". Empty where nothing is known of the option.
std::string spelling_here(const CLI::App& command, const std::string& typed);

// Returns the command that does what a program of nccl-tests or perftest does, or a collective's
// name that was typed as a command: "weft perf all_reduce". Empty where there is none.
std::string command_for(const std::string& program);

}  // namespace weft
