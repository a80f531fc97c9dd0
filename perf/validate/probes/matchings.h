// Matchings of hosts: which pairs talk in the same round. Pure.
#pragma once

#include <cstdint>
#include <random>
#include <utility>
#include <vector>

namespace weft::fabric {

// Disjoint pairs of hosts; a host that is left over is in no pair.
using Matching = std::vector<std::pair<int, int>>;

// All pairs of `hosts` hosts in hosts - 1 rounds (hosts rounds where the number is odd): the circle
// method.
std::vector<Matching> all_pairs(int hosts);
int all_pairs_rounds(int hosts);  // how many matchings that are

// ceil(log2 hosts) matchings: i with i ^ 2^k; hosts without such a partner are matched among
// themselves.
std::vector<Matching> xor_cover(int hosts);

// `count` matchings of hosts in random order, no pair twice; fewer where that are all pairs. One
// host is left over in each where the number of hosts is odd.
std::vector<Matching> random_matchings(int hosts, int count, std::mt19937_64& random);

}  // namespace weft::fabric
