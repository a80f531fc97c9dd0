// What a command line that cannot be parsed is told: the value, what is wrong with it, a remedy.
#pragma once

#include <CLI/CLI.hpp>
#include <string>

namespace weft {

// One line, without "weft" and the command before it where that is not known. `app` is the whole
// command line, parsed as far as it went.
std::string explain_parse_error(const CLI::App& app, const CLI::ParseError& error);

// Every option of every command that takes a fraction refuses nan and inf: checks of a range let
// nan pass.
void refuse_what_is_not_finite(CLI::App& app);

}  // namespace weft
