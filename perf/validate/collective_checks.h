// Runs every collective with every applicable algorithm, and compares results bit for bit.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "coll/api/communicator.h"
#include "coll/select/cost.h"
#include "perf/collective/exercise.h"
#include "perf/validate/probes/fabric.h"
#include "perf/validate/probes/samples.h"
#include "topo/topology.h"

namespace weft::fabric {

// Returns the cases of one collective, the same on every rank: each type and operator at a small
// count, sums at a larger one, in and out of place, with the first and last rank as root.
std::vector<Case> validation_cases(Collective collective, int nranks);

// Returns one result per collective and algorithm, complete on rank 0. When budget_s is used up,
// all cases of the remaining algorithms are left out. Calls `show` with the algorithm that is about
// to run. Collective; throws JobFailed.
std::vector<CollectiveResult> run_collectives(World& world, double budget_s,
                                              const std::function<void(const std::string&)>& show);

// The ranks of a job, on their hosts and rails.
struct Players {
  std::vector<std::vector<Rank>> hosts;
  std::vector<int> rail;  // by rank
};
Players players_of(const Topology& topology);

// Returns the all_reduce to time, and the busbw that the cost model predicts for it if all rails
// run at the rate of the slowest port, with and without latencies and cores. Uses the smallest of
// 4, 16 and 64 MiB that is limited mainly by links; 4 MiB if no size is, or if no rate is known.
// Pure.
CollectiveResult expected_all_reduce(const std::vector<FleetHost>& hosts, const Samples& samples,
                                     const Players& players, const CostModel& costs);
// Times the all_reduce that rank 0 expects. Collective; returns nothing if the job has one host.
std::vector<CollectiveResult> time_all_reduce(World& world, CollectiveResult expected,
                                              double budget_s);

}  // namespace weft::fabric
