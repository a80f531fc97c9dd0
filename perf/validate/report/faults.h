// The findings of a run as people want them: faults by place, the heaviest first.
#pragma once

#include <string>
#include <vector>

#include "perf/validate/report/report.h"

namespace weft::fabric {

// A finding that stands for itself, and the findings that it explains. Valid as long as the report.
struct Fault {
  const Finding* first = nullptr;
  std::vector<const Finding*> also;
  std::size_t places = 1;  // of what is not known: at how many
};

// Findings of WARN and above that are known, in the report's order, each with those that it
// explains, directly or not.
std::vector<Fault> faults_of(const Report& report);

// What could not be known, the first place of each check, in the report's order.
std::vector<Fault> unknowns_of(const Report& report);

// The verdict's sentence without the verdict: "h3 rail 1 (mlx5_1) sends at 187 of 392 Gb/s".
std::string headline(const Report& report);

}  // namespace weft::fabric
