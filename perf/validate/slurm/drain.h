// Which nodes a report of `weft validate` wants drained, and the reason of each. Pure.
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

// Nodes with a finding of FAIL or more whose place is that host or one of its ports, of the given
// certainty at least; the heaviest finding has the reason. Nothing where the verdict is
// not CRITICAL: a tester without cores, or what could not be known, drains no node. A fault of a
// path, a rail or a switch is no node's. Throws Error when the report is not a weft.validate/3.
std::vector<Drain> nodes_to_drain(const nlohmann::ordered_json& report,
                                  Certainty least = Certainty::kLikely);

}  // namespace weft::fabric
