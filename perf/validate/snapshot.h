// What recorded trees of /sys say of a host, without a job.
#pragma once

#include <string>
#include <vector>

#include "perf/validate/report/report.h"

namespace weft::fabric {

// Reads the host of a tree (a copy of /sys; /proc, debugfs and ethtool's outputs beside it, where
// they are there) and judges what it says of its rails by the passive checks. With a second, later
// tree of the same host, counters that moved in between are judged too; one says nothing of them.
// Throws Error where a tree is no directory.
Report judge_snapshots(const std::vector<std::string>& roots, const Policy& policy);

}  // namespace weft::fabric
