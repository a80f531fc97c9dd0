// Matchings of hosts: the pairs that communicate in the same round. Pure.
#pragma once

#include <cstdint>
#include <random>
#include <utility>
#include <vector>

namespace weft::fabric {

// Disjoint pairs of hosts; an unpaired host is left out.
using Matching = std::vector<std::pair<int, int>>;

// Returns all pairs of `hosts` hosts in hosts - 1 rounds (`hosts` rounds if odd), by the circle
// method.
std::vector<Matching> all_pairs(int hosts);
int all_pairs_rounds(int hosts);  // number of matchings of all_pairs()

// ceil(log2 hosts) matchings: i with i ^ 2^k; hosts without that partner are paired with each
// other.
std::vector<Matching> xor_cover(int hosts);

// `count` matchings of hosts in random order, without repeated pairs; fewer if all pairs are used
// up. With an odd number of hosts, each matching leaves one host out.
std::vector<Matching> random_matchings(int hosts, int count, std::mt19937_64& random);

}  // namespace weft::fabric
