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

// The pairs of `pairs` ("all", "ring", "rail", "random") in rounds; no rank is twice in a round.
// Every rank comes to the same. Throws Error where there are none.
std::vector<std::vector<RankPair>> choose_pairs(const std::string& pairs, std::uint64_t seed,
                                                const Topology& topology);

// Measures, prints, and returns the exit code.
int run_pairs(const PairOptions& options);

}  // namespace weft
