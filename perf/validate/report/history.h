// `weft validate history DIR`: several runs side by side.
#pragma once

#include <cstddef>
#include <string>
#include <utility>
#include <vector>

#include "perf/validate/report/report.h"

namespace weft::fabric {

// The reports of a folder, oldest first. `left_out` names the .json files that are not reports of
// this schema, each with the reason.
struct History {
  std::vector<std::pair<std::string, Report>> runs;  // by file name
  std::vector<std::string> left_out;
};

// Reads at most the `most` newest reports (by file name). Throws Error if the folder cannot be read
// or has no report.
History read_history(const std::string& folder, std::size_t most = 1000);

// Returns a table of runs with verdicts and headlines, and one of the ports' rates in the latest
// runs. Sorts ports by the change of their rates, largest first; at most 20 without `verbose`.
std::string to_text(const History& history, const TextOptions& options);

}  // namespace weft::fabric
