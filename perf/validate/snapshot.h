// Judges recorded trees of /sys of a host, without a job.
#pragma once

#include <string>
#include <vector>

#include "perf/validate/report/report.h"

namespace weft::fabric {

// Reads the host of a tree (a copy of /sys, optionally with /proc, debugfs and ethtool's outputs
// next to it) and judges its rails with the passive checks. With a second, later tree of the host,
// also judges the counters that changed in between. Throws Error if a tree is not a directory.
Report judge_snapshots(const std::vector<std::string>& roots, const Policy& policy);

}  // namespace weft::fabric
