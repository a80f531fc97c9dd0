// Determines the slow ports from measured rates. Thresholds suppress noise: a port becomes slow if
// its rate is a fifth below the others, a slow port becomes healthy within a tenth of the others,
// and fractions are rounded to steps.
#include <algorithm>
#include <cmath>
#include <map>
#include <utility>
#include <vector>

#include "coll/select/slow_ports.h"

namespace weft {
namespace {

constexpr double kSlow = 0.8, kHealthy = 0.9;  // thresholds, relative to the rate of other ports
constexpr double kSteps = 20;                  // steps between the fractions 0 and 1
constexpr double kSame = 0.075;                // fractions that differ by less are equal

// The rate that most ports of a rail reach or exceed; 0: no port was measured.
double usual(std::vector<double> rates) {
  if (rates.empty()) return 0;
  std::ranges::sort(rates);
  return rates[rates.size() / 2];
}

double fraction_of(double rate, double before) {
  if (rate <= 0) return 0;
  if (rate >= (before < 1 ? kHealthy : kSlow)) return 1;
  if (std::abs(rate - before) < kSame) return before;
  return std::max(1.0, std::round(rate * kSteps)) / kSteps;
}

}  // namespace

std::vector<PortRate> slow_ports_of(const std::vector<PortRate>& measured,
                                    const std::vector<PortRate>& before) {
  const auto before_of = [&](const PortRate& p) {
    const auto same = std::ranges::find_if(
        before, [&](const PortRate& b) { return b.host == p.host && b.rail == p.rail; });
    return same == before.end() ? 1 : same->rate;
  };
  struct Rail {
    std::vector<double> rates;
    bool was_slow = true;  // on all hosts
  };
  std::map<int, Rail> rails;
  std::map<int, bool> alive;  // by host
  for (const PortRate& p : measured) {
    rails[p.rail].rates.push_back(p.rate);
    rails[p.rail].was_slow = rails[p.rail].was_slow && before_of(p) < 1;
    alive[p.host] = alive[p.host] || p.rate > 0;
  }
  double best = 0;
  for (const auto& [rail, of] : rails) best = std::max(best, usual(of.rates));
  std::vector<PortRate> slow;
  for (const PortRate& p : measured) {
    if (best <= 0 || !alive[p.host]) continue;  // a host whose ports are all unreachable has failed
    // Rails are measured one after the other, so only a clear difference between them counts.
    const Rail& rail = rails[p.rail];
    const double of_rail = usual(rail.rates);
    const bool as_fast = of_rail >= (rail.was_slow ? kHealthy : kSlow) * best;
    const double fraction = fraction_of(p.rate / (as_fast ? of_rail : best), before_of(p));
    if (fraction < 1) slow.push_back({p.host, p.rail, fraction});
  }
  std::ranges::sort(slow, {}, [](const PortRate& p) { return std::pair{p.host, p.rail}; });
  return slow;
}

}  // namespace weft
