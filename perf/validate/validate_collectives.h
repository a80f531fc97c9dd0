// Every collective by every algorithm that works here, with payloads that are compared bit by bit.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "coll/api/communicator.h"
#include "perf/collective/exercise.h"
#include "perf/validate/verdict.h"

namespace weft {

// The cases of one collective: types and operators at small counts, sums at a larger one, in and
// out of place, roots at both ends. The same list on every rank.
std::vector<Case> validation_cases(Collective collective, int nranks);

// One item per collective and algorithm, the same on every rank. What does not fit in budget_s is
// UNKNOWN. `show` hears what runs now. Throws JobFailed.
std::vector<Item> validate_collectives(World& world, double budget_s,
                                       const std::function<void(const std::string&)>& show);

}  // namespace weft
