// The error texts for a command line that cannot be parsed: the value, its fault, a remedy.
#pragma once

#include <CLI/CLI.hpp>
#include <initializer_list>
#include <string>
#include <string_view>
#include <vector>

namespace weft {

// Returns one line that begins with "weft" and the part of the command that was parsed. `app` is
// the top command.
std::string explain_parse_error(const CLI::App& app, const CLI::ParseError& error);

// Returns "no command 'valdate'; did you mean validate?; there are: ...".
std::string no_command(const CLI::App& command, const std::string& typed);

// Makes every option that takes a fraction, of every command, refuse nan and inf: CLI11's range
// checks let nan pass.
void refuse_what_is_not_finite(CLI::App& app);

// Throws Error if one of the options was given; `why` says why the run would ignore it.
void refuse_given(const CLI::App& command, std::initializer_list<const char*> options,
                  std::string_view why);

// Prints "weft: warning: ..." for each, on one process of a launched job. With about_command_line,
// the ranks that this process starts do not repeat them.
void warn(const std::vector<std::string>& warnings, bool about_command_line = true);

}  // namespace weft
