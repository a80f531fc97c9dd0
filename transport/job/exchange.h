// Exchanges setup data between the ranks of a job.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "topo/topology.h"
#include "transport/job/bootstrap.h"

namespace weft {

// "rank 3 on host b"
std::string rank_on_host(const Topology& topology, Rank rank);

// All-gathers the results of say(); collective over the job. If say() throws Error on a rank, every
// rank throws an Error with that rank and its reason. The failing rank takes part in the
// all_gather, so that the other ranks fail immediately instead of by timeout.
std::vector<std::string> exchange(Job& job, const Topology& topology,
                                  const std::function<std::string()>& say);

}  // namespace weft
