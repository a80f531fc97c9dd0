// Groups a run's findings into faults by place for display, in the report's order (most serious
// first).
#pragma once

#include <string>
#include <vector>

#include "perf/validate/report/report.h"

namespace weft::fabric {

// A finding without a reason, and the findings that it explains. Valid as long as the report.
struct Fault {
  const Finding* first = nullptr;
  std::vector<const Finding*> also;
  std::size_t places = 1;  // for an unknown finding: number of places
};

// Returns the known findings of WARN and above, in the report's order, each with all findings that
// it explains, directly or indirectly.
std::vector<Fault> faults_of(const Report& report);

// Returns the unknown findings, the first place of each check, in the report's order.
std::vector<Fault> unknowns_of(const Report& report);

// Returns the verdict's sentence without the verdict itself: "h3 rail 1 (mlx5_1) sends at 187 of
// 392 Gb/s".
std::string headline(const Report& report);

}  // namespace weft::fabric
