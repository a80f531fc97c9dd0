// The lines of a soak.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "perf/validate/report/report.h"

namespace weft::fabric {

// "soak: 3 of 30 min: 240 flows since, the slowest at 390 of 392 Gb/s, 2 of 3.1e6 packets sent
// again; so far no fault". The report has all samples so far; flows from index `first` up are new.
std::string soak_line(const Report& report, const std::vector<Finding>& findings, std::size_t first,
                      double seconds, double of_seconds);

}  // namespace weft::fabric
