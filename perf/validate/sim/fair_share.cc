// Progressive filling: repeatedly, the link with the smallest fair share fixes the rates of its
// flows.
#include "perf/validate/sim/fair_share.h"

#include <algorithm>
#include <limits>

namespace weft::fabric {

std::vector<double> fair_rates(const std::vector<std::vector<int>>& links,
                               const std::vector<double>& most,
                               const std::vector<double>& capacity) {
  constexpr double kSame = 1 + 1e-9;
  std::vector<double> rates(links.size(), 0), left = capacity;
  std::vector<int> users(capacity.size(), 0), open;
  for (std::size_t f = 0; f < links.size(); ++f) {
    open.push_back(static_cast<int>(f));
    for (const int link : links[f]) ++users[static_cast<std::size_t>(link)];
  }
  // Upper bound of flow f at this point.
  const auto share = [&](int f) {
    double least = most[static_cast<std::size_t>(f)];
    for (const int link : links[static_cast<std::size_t>(f)]) {
      const auto l = static_cast<std::size_t>(link);
      least = std::min(least, std::max(0.0, left[l]) / users[l]);
    }
    return least;
  };
  std::vector<double> shares(links.size());
  while (!open.empty()) {
    double smallest = std::numeric_limits<double>::infinity();
    for (const int f : open) {
      shares[static_cast<std::size_t>(f)] = share(f);
      smallest = std::min(smallest, shares[static_cast<std::size_t>(f)]);
    }
    std::erase_if(open, [&](int flow) {
      const auto f = static_cast<std::size_t>(flow);
      if (shares[f] > smallest * kSame) return false;
      rates[f] = shares[f];
      for (const int link : links[f]) {
        left[static_cast<std::size_t>(link)] -= rates[f];
        --users[static_cast<std::size_t>(link)];
      }
      return true;
    });
  }
  return rates;
}

}  // namespace weft::fabric
