// The additional output of `--verbose`.
#pragma once

#include <string>
#include <vector>

#include "perf/validate/report/report.h"

namespace weft::fabric {

// Returns all findings with their evidence, ports, rates of host pairs, changed counters, coverage,
// collectives and drift, in lines of at most `options.columns`.
std::vector<std::string> verbose_lines(const Report& report, const TextOptions& options);

}  // namespace weft::fabric
