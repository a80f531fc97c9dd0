// Writes the file of --json, or of another option: the file holds a whole report, or is not
// touched. Independent of the report's content.
#pragma once

#include <string>
#include <string_view>

namespace CLI {
class App;
class Option;
}  // namespace CLI

namespace weft {

class World;

// Adds --json [FILE], for all commands: the report is also written to FILE, or, with "-" or no
// FILE, to standard output instead of the text. `schema` is named in the help.
CLI::Option* add_json_option(CLI::App& command, std::string& file, std::string_view schema);

// Returns why no report can be written to `path` (empty: none, "-": standard output, or a file); ""
// if it can. The call changes no file at `path` and leaves no new one. The answer names `option`.
std::string why_not_writable(const std::string& path, std::string_view option = "--json");

// Throws Error if no report can be written to `path`.
void check_report(const std::string& path, std::string_view option = "--json");
// Checks `path` on rank 0 of a job, which writes the report. Throws UsageError on all ranks.
void check_report(World& world, const std::string& path, std::string_view option = "--json");

// Writes `text` to standard output (path "-"), or to a new file that then replaces `path`: a reader
// of `path` finds the old report or the new one, even after Ctrl-C. A device or a pipe is written
// to, never replaced. Throws UsageError.
void write_report(const std::string& path, std::string_view text,
                  std::string_view option = "--json");

}  // namespace weft
