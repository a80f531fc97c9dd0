// Rails that failed during a validation while others carried their messages.
#pragma once

#include <string>
#include <vector>

#include "coll/communicator.h"
#include "perf/verdict.h"

namespace weft {

// A rail between two hosts, as a rank of one of them saw it.
struct RailOutage {
  int rail = 0;
  std::string host, other;
  bool back = false;  // it answers again
  std::string cause;
};

// What all ranks have seen since the World was made; every rank gets all.
std::vector<RailOutage> rail_outages(World& world);

// An item for each rail that failed. It names the host that all its failures have in common.
std::vector<Item> judge_outages(const std::vector<RailOutage>& outages);

}  // namespace weft
