// Simulates the ranks of one host for those of all hosts, where all hosts do alike.
//
// What a rank sends to other hosts comes back as what a rank of its host gets from them: the i-th
// message from the l-th ranks of hosts to the k-th ranks of others is taken by the i-th such
// receive of the k-th rank. Knows no algorithm.
#pragma once

#include <memory>
#include <span>
#include <vector>

#include "coll/engine/plan.h"
#include "coll/schedule/algorithm.h"
#include "transport/sim/sim.h"

namespace weft {

// By rank of a job of equal hosts, rank after rank: the rank of the first host that stands for it.
// Empty where hosts are others.
std::vector<Rank> ranks_of_one_host(const Shape& shape);

// Whether `plan` is that of one of these ranks, but for its peers' hosts and which chunks are
// moved, and its receives are those of them that one_host's links give the messages of the first
// host to. plans[r] is that of rank r of the first host.
bool does_alike(std::span<const Plan* const> plans, const Plan& plan);

// The links of the ranks of the first host, one for each plan, and others that these use.
std::vector<std::unique_ptr<Transport>> links_of_one_host(SimFabric& fabric,
                                                          std::span<const Plan* const> plans);

}  // namespace weft
