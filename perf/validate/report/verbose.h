// What `--verbose` adds to the screen.
#pragma once

#include <string>
#include <vector>

#include "perf/validate/report/report.h"

namespace weft::fabric {

// All findings with their evidence, ports, rates of host pairs, counters that moved, coverage,
// collectives and drift, in lines of at most `options.columns`.
std::vector<std::string> verbose_lines(const Report& report, const TextOptions& options);

}  // namespace weft::fabric
