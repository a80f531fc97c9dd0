// Rails that failed during a validation while others carried their messages.
#pragma once

#include <string>
#include <vector>

#include "coll/api/communicator.h"
#include "perf/validate/verdict.h"

namespace weft {

// A rail between two hosts, as a rank of one of them saw it. kNoRail: none failed, but none could
// stand in for another (Metrics::unheard).
inline constexpr int kNoRail = -1;
struct RailOutage {
  int rail = 0;
  std::string host, other;
  bool back = false;  // it answers again
  std::string cause;
};

// What all ranks have seen since the World was made; every rank gets all.
std::vector<RailOutage> rail_outages(World& world);

// An item for each rail that failed, or for each host that its failures have in common.
std::vector<Item> judge_outages(const std::vector<RailOutage>& outages);

}  // namespace weft
