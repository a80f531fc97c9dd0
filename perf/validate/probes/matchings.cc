// The circle method, the XOR cover and random matchings.
#include "perf/validate/probes/matchings.h"

#include <algorithm>
#include <numeric>

namespace weft::fabric {
namespace {

Matching neighbours(const std::vector<int>& order) {
  Matching matching;
  for (std::size_t i = 0; i + 1 < order.size(); i += 2)
    matching.emplace_back(std::min(order[i], order[i + 1]), std::max(order[i], order[i + 1]));
  return matching;
}

// Returns one round of the circle method; an odd number of hosts gets a dummy.
Matching circle_round(int hosts, int turn) {
  const int even = hosts + hosts % 2;
  Matching matching;
  for (int i = 0; i < even / 2; ++i) {
    const int a = i == 0 ? even - 1 : (turn + i) % (even - 1);
    const int b = (turn + even - 1 - i) % (even - 1);
    if (a < hosts && b < hosts) matching.emplace_back(std::min(a, b), std::max(a, b));
  }
  return matching;
}

}  // namespace

int all_pairs_rounds(int hosts) { return std::max(0, hosts + hosts % 2 - 1); }

std::vector<Matching> all_pairs(int hosts) {
  std::vector<Matching> rounds;
  for (int turn = 0; turn < all_pairs_rounds(hosts); ++turn)
    rounds.push_back(circle_round(hosts, turn));
  return rounds;
}

std::vector<Matching> xor_cover(int hosts) {
  std::vector<Matching> rounds;
  for (int bit = 1; bit < hosts; bit *= 2) {
    Matching matching;
    std::vector<int> alone;
    for (int host = 0; host < hosts; ++host) {
      const int peer = host ^ bit;
      if (peer >= hosts)
        alone.push_back(host);
      else if (host < peer)
        matching.emplace_back(host, peer);
    }
    for (const auto& pair : neighbours(alone)) matching.push_back(pair);
    rounds.push_back(std::move(matching));
  }
  return rounds;
}

std::vector<Matching> random_matchings(int hosts, int count, std::mt19937_64& random) {
  std::vector<int> order(static_cast<std::size_t>(hosts));
  std::iota(order.begin(), order.end(), 0);
  std::shuffle(order.begin(), order.end(), random);
  std::vector<int> turns(static_cast<std::size_t>(all_pairs_rounds(hosts)));
  std::iota(turns.begin(), turns.end(), 0);
  std::shuffle(turns.begin(), turns.end(), random);
  if (static_cast<int>(turns.size()) > count) turns.resize(static_cast<std::size_t>(count));
  std::vector<Matching> matchings;
  for (const int turn : turns) {
    Matching matching = circle_round(hosts, turn);
    for (auto& [a, b] : matching) {
      a = order[static_cast<std::size_t>(a)];
      b = order[static_cast<std::size_t>(b)];
      if (a > b) std::swap(a, b);
    }
    matchings.push_back(std::move(matching));
  }
  return matchings;
}

}  // namespace weft::fabric
