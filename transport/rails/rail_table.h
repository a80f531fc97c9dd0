// Assigns large messages of a pair of ranks to rails. This file depends on rates, not on lanes.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <numeric>
#include <span>
#include <utility>
#include <vector>

namespace weft {

inline constexpr int kRailBuckets = 32;  // of large messages; each bucket has one rail
using RailTable = std::array<std::uint8_t, kRailBuckets>;  // the rail of each bucket

// The speeds of a rail (LaneRate): the mean decides whether rails differ, the rate by how much.
struct RailSpeed {
  int rail = 0;
  double rate = 0, mean = 0;
};

// Interleaves rails in proportion to their rates, so that neighboring buckets use different rails.
// Every rail has at least one bucket: an unused rail is not measured. Short messages are in the
// first bucket, which belongs to the first rail. alike: means that differ by less count as equal.
inline RailTable rail_table(std::span<const RailSpeed> rails, double alike) {
  RailTable table;
  table.fill(static_cast<std::uint8_t>(rails[0].rail));
  if (rails.size() == 1) return table;
  const auto [slowest, fastest] = std::ranges::minmax(rails, {}, &RailSpeed::mean);
  const bool known = slowest.mean > 0 && fastest.mean > alike * slowest.mean;
  const double all = std::accumulate(rails.begin(), rails.end(), 0.0,
                                     [](double sum, const RailSpeed& r) { return sum + r.rate; });
  std::vector<double> share, taken(rails.size(), 0.0);
  for (const RailSpeed& r : rails)
    share.push_back(known ? std::max(r.rate / all, 1.0 / kRailBuckets)
                          : 1.0 / static_cast<double>(rails.size()));
  for (int b = 0; b < kRailBuckets; ++b) {
    std::size_t best = 0;
    for (std::size_t i = 1; i < rails.size(); ++i)
      if (share[i] * (b + 1) - taken[i] > share[best] * (b + 1) - taken[best] + 1e-9) best = i;
    taken[best] += 1;
    table[static_cast<std::size_t>(b)] = static_cast<std::uint8_t>(rails[best].rail);
  }
  const auto own = std::ranges::find(table, static_cast<std::uint8_t>(rails[0].rail));
  if (own != table.end()) std::swap(*own, table[0]);
  return table;
}

// Ignores a change by one bucket, because rates fluctuate, unless a rail is added or removed.
inline bool nearly_alike(const RailTable& a, const RailTable& b, int rails) {
  int moved = 0;
  for (int r = 0; r < rails; ++r) {
    const auto n = std::ranges::count(a, r), m = std::ranges::count(b, r);
    if ((n == 0) != (m == 0)) return false;
    moved += static_cast<int>(std::abs(n - m));
  }
  return moved <= 2;
}

}  // namespace weft
