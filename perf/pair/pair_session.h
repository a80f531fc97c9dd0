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

// Returns every pair of n once, in rounds of pairs that share no member (circle method).
std::vector<std::vector<std::pair<Rank, Rank>>> pair_rounds(int n);

// Chooses the pairs of `pairs` ("all", "ring", "rail", "random") in rounds; a round has each rank
// at most once. Every rank computes the same rounds. Throws Error where there are no pairs.
std::vector<std::vector<RankPair>> choose_pairs(const std::string& pairs, std::uint64_t seed,
                                                const Topology& topology);

// Measures the pairs, prints the report, and returns the exit code.
int run_pairs(const PairOptions& options);

}  // namespace weft
