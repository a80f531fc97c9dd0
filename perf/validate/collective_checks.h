// Runs every collective by every algorithm that works here, and compares payloads bit by bit.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "coll/api/communicator.h"
#include "perf/collective/exercise.h"
#include "perf/validate/job_traffic.h"
#include "perf/validate/probes/fabric.h"

namespace weft::fabric {

// Returns the cases of one collective, the same on every rank: each type and operator at one of
// some small counts, sums at a larger count, in and out of place, roots at both ends.
std::vector<Case> validation_cases(Collective collective, int nranks);

// Returns one result per collective and algorithm, whole on rank 0. An algorithm that does
// not fit in budget_s has all its cases left out. Calls `show` with the name of the case that runs.
// Throws JobFailed.
std::vector<CollectiveResult> run_collectives(World& world, double budget_s,
                                              const std::function<void(const std::string&)>& show);

// Times an all_reduce between hosts. Collective; nothing where the job has one host.
std::vector<CollectiveResult> time_all_reduce(World& world, double budget_s);
// Fills in the busbw of timed results that the cost model predicts where all rails run at the rate
// of the slowest port, and that port. Pure.
void predict(std::vector<CollectiveResult>& timed, const std::vector<FleetHost>& hosts,
             const Samples& samples, const Players& players, const CostModel& costs);

}  // namespace weft::fabric
