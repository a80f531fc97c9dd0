// Writes the file of --json or of another option atomically: the file contains a whole report, or
// remains unchanged. This file is independent of the report's content.
#pragma once

#include <string>
#include <string_view>

namespace CLI {
class App;
class Option;
}  // namespace CLI

namespace weft {

class World;

// Adds --json [FILE], which all commands have: the report is also written to FILE; with "-" or
// without FILE it is written to standard output instead of the text. The help contains `schema`.
CLI::Option* add_json_option(CLI::App& command, std::string& file, std::string_view schema);

// Returns the reason why a report cannot be written to `path` (a file, "-" for standard output, or
// "" for no report), or an empty string if it can. Changes no file at `path` and leaves no new
// file. The reason contains `option`.
std::string why_not_writable(const std::string& path, std::string_view option = "--json");

// Throws Error if a report cannot be written to `path`.
void check_report(const std::string& path, std::string_view option = "--json");
// Checks `path` on rank 0, which writes the report of a job. Throws UsageError on all ranks.
void check_report(World& world, const std::string& path, std::string_view option = "--json");

// Writes `text` to standard output (path "-"), or to a new file that then replaces `path`: a reader
// of `path` gets either the old report or the new one, even after Ctrl-C. A device or a pipe is
// written to, never replaced. Throws UsageError.
void write_report(const std::string& path, std::string_view text,
                  std::string_view option = "--json");

}  // namespace weft
