// The error texts for an invalid command line: the value, the problem, a remedy.
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

// Makes every floating-point option of every command refuse nan and inf: CLI11's range checks
// accept nan.
void refuse_what_is_not_finite(CLI::App& app);

// Throws Error if one of the options was given; `why`: the reason why the run would ignore the
// option.
void refuse_given(const CLI::App& command, std::initializer_list<const char*> options,
                  std::string_view why);

// Prints "weft: warning: ..." for each warning, on one process of a launched job. With
// about_command_line, ranks that this process starts do not repeat the warnings.
void warn(const std::vector<std::string>& warnings, bool about_command_line = true);

}  // namespace weft
