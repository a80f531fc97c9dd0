// Which nodes should be drained according to a report of `weft validate`, and why. Pure.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "perf/validate/checks/finding.h"

namespace weft::fabric {

struct Drain {
  std::string node;
  std::string reason;  // "weft: port-rate at rail 1 transmit, 187 of 392 Gb/s": one line, no quotes
  bool operator==(const Drain&) const = default;
};

// Returns nodes with a finding of FAIL or worse at the host or one of its ports, with at least the
// given certainty; the most severe finding is the reason. Empty unless the verdict is CRITICAL: a
// starved tester, an unknown result, or a fault of a path, rail or switch drains no node. Throws
// Error if the report is not of schema weft.validate/3 or /2.
std::vector<Drain> nodes_to_drain(const nlohmann::ordered_json& report,
                                  Certainty least = Certainty::kLikely);

}  // namespace weft::fabric
