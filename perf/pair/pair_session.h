// Runs the pairs of `weft perf bw` and `weft perf lat`: as client and server, or as the ranks of a
// job that a launcher started.
#pragma once

#include <cstdint>
#include <utility>
#include <vector>

#include "perf/pair/pair_options.h"
#include "topo/topology.h"

namespace weft {

struct RankPair {
  Rank client = 0, server = 0;
  bool operator==(const RankPair&) const = default;
};

// Returns every pair of n ranks once, in rounds of disjoint pairs (circle method).
std::vector<std::vector<std::pair<Rank, Rank>>> pair_rounds(int n);

// Returns the pairs for `pairs` ("all", "ring", "rail", "random") in rounds that have each rank at
// most once. Deterministic: every rank computes the same. Throws Error if there are no pairs.
std::vector<std::vector<RankPair>> choose_pairs(const std::string& pairs, std::uint64_t seed,
                                                const Topology& topology);

// Measures the pairs, prints the report, and returns the exit code.
int run_pairs(const PairOptions& options);

}  // namespace weft
