// Runs every collective by every algorithm that works here, and compares payloads bit by bit.
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

// Returns the cases of one collective, the same on every rank: each type and operator at one of
// some small counts, sums at a larger count, in and out of place, roots at both ends.
std::vector<Case> validation_cases(Collective collective, int nranks);

// Returns one result per collective and algorithm, whole on rank 0. An algorithm that does
// not fit in budget_s has all its cases left out. Calls `show` with the name of the case that runs.
// Throws JobFailed.
std::vector<CollectiveResult> run_collectives(World& world, double budget_s,
                                              const std::function<void(const std::string&)>& show);

// The ranks of a job, on their hosts and rails.
struct Players {
  std::vector<std::vector<Rank>> hosts;
  std::vector<int> rail;  // by rank
};
Players players_of(const Topology& topology);

// The all_reduce that is worth timing, and the busbw that the cost model predicts for it where all
// rails run at the rate of the slowest port, with and without latencies and cores. The shortest of
// 4, 16 and 64 MiB that links hold up most; 4 MiB where none is, or no rate is known. Pure.
CollectiveResult expected_all_reduce(const std::vector<FleetHost>& hosts, const Samples& samples,
                                     const Players& players, const CostModel& costs);
// Times the all_reduce that rank 0 expects, between hosts. Collective; nothing where the job has
// one host.
std::vector<CollectiveResult> time_all_reduce(World& world, CollectiveResult expected,
                                              double budget_s);

}  // namespace weft::fabric
