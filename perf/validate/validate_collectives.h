// Runs every collective by every algorithm that works here, and compares payloads bit by bit.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "coll/api/communicator.h"
#include "perf/collective/exercise.h"
#include "perf/validate/verdict.h"

namespace weft {

// Returns the cases of one collective, the same on every rank: types and operators at small counts,
// sums at a larger count, in and out of place, roots at both ends.
std::vector<Case> validation_cases(Collective collective, int nranks);

// Returns one item per collective and algorithm, the same on every rank. Cases that do not fit in
// budget_s are UNKNOWN. Calls `show` with the name of the case that runs. Throws JobFailed.
std::vector<Item> validate_collectives(World& world, double budget_s,
                                       const std::function<void(const std::string&)>& show);

}  // namespace weft
