// The file of --json: a report is there whole, or not at all.
#pragma once

#include <string>
#include <string_view>

namespace weft {

class World;

// "", or why no report can be written to `path`: empty, or - for standard output, or a file. Leaves
// what is at `path` as it is, so no empty file where there was none.
std::string why_not_writable(const std::string& path);

// Throws Error when no report can be written to `path`.
void check_report(const std::string& path);
// The same on rank 0 of a job, who writes it; UsageError on all ranks.
void check_report(World& world, const std::string& path);

// Writes `text` to standard output (path "-"), or to a new file which then takes the place of
// `path`: whoever reads `path` finds the old report or the new one, even after Ctrl-C. Devices and
// pipes are written to, never replaced. Throws UsageError.
void write_report(const std::string& path, std::string_view text);

}  // namespace weft
