// What options of other tools, and of earlier versions, are called here. This file parses nothing.
#pragma once

#include <CLI/CLI.hpp>
#include <string>

namespace weft {

// Returns what to type in place of an option that this command does not have, as a sentence:
// "ranks are -N". Empty where nothing is known of the option.
std::string spelling_here(const CLI::App& command, const std::string& typed);

}  // namespace weft
