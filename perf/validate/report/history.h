// `weft validate history DIR`: several runs side by side.
#pragma once

#include <cstddef>
#include <string>
#include <utility>
#include <vector>

#include "perf/validate/report/report.h"

namespace weft::fabric {

// The reports of a folder, the oldest first. Files that end in .json and are no reports of this
// schema are named in `left_out`, each with the reason.
struct History {
  std::vector<std::pair<std::string, Report>> runs;  // by file name
  std::vector<std::string> left_out;
};

// Reads at most the `most` newest reports (by the name of their files). Throws Error where the
// folder cannot be read or has no report.
History read_history(const std::string& folder, std::size_t most = 1000);

// A table of runs with their verdicts and headlines, and one of the ports' rates in the last runs.
// The ports whose rates moved most come first; without `verbose` at most 20 of them.
std::string to_text(const History& history, const TextOptions& options);

}  // namespace weft::fabric
