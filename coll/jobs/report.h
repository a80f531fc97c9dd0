// Writes the file of --json: the file holds a whole report, or is not touched.
// This file does not know what a report says.
#pragma once

#include <string>
#include <string_view>

namespace weft {

class World;

// Returns why no report can be written to `path` (empty: none, "-": standard output, or a file); ""
// where it can. The call changes no file at `path` and leaves no new one.
std::string why_not_writable(const std::string& path);

// Throws Error when no report can be written to `path`.
void check_report(const std::string& path);
// Checks `path` on rank 0 of a job, which writes the report. Throws UsageError on all ranks.
void check_report(World& world, const std::string& path);

// Writes `text` to standard output (path "-"), or to a new file that then replaces `path`: a reader
// of `path` finds the old report or the new one, even after Ctrl-C. A device or a pipe is written
// to, never replaced. Throws UsageError.
void write_report(const std::string& path, std::string_view text);

}  // namespace weft
