// What the ranks of a job tell each other as they set something up.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "topo/topology.h"
#include "transport/job/bootstrap.h"

namespace weft {

// "rank 3 on host b"
std::string rank_on_host(const Topology& topology, Rank rank);

// Returns what all ranks say, each by its say(); collective over the job. Where say() throws Error
// on some rank, every rank throws Error that names the rank, with its reason: a rank that fails
// still takes part, so that all learn of it now and not by a timeout, and none finds it gone.
std::vector<std::string> exchange(Job& job, const Topology& topology,
                                  const std::function<std::string()>& say);

}  // namespace weft
