// Draws the times of faults, and the factors of fluctuating rates.
#include "perf/validate/worlds/spells.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "topo/base/random.h"

namespace weft::fabric {

SpellClock::SpellClock(const Spells& spells, std::uint64_t seed)
    : spells_(spells), random_(splitmix64(seed)) {
  begin_s_ = end_s_ = 0;
  next_s_ = between(0, spells.most_period_s);
}

bool SpellClock::at(double time_s) {
  if (spells_.most_period_s <= 0) return true;
  while (time_s >= next_s_) {
    begin_s_ = next_s_;
    end_s_ = begin_s_ + between(spells_.least_s, spells_.most_s);
    next_s_ = std::max(end_s_, begin_s_ + between(spells_.least_period_s, spells_.most_period_s));
  }
  return time_s >= begin_s_ && time_s < end_s_;
}

Wander::Wander(double deviation, double correlation_s, double dips_per_s, double pareto,
               std::uint64_t seed)
    : deviation_(deviation),
      correlation_s_(correlation_s),
      dips_per_s_(dips_per_s),
      pareto_(pareto),
      random_(splitmix64(seed)) {
  log_ = std::normal_distribution<>(0, deviation_ > 0 ? deviation_ : 1)(random_);
  if (deviation_ <= 0) log_ = 0;
  dip_begin_s_ = dips_per_s_ > 0 ? -std::log(uniform()) / dips_per_s_
                                 : std::numeric_limits<double>::infinity();
}

double Wander::at(double time_s) {
  const double keeps = std::exp(-(time_s - time_s_) / correlation_s_);
  log_ = keeps * log_ +
         deviation_ * std::sqrt(1 - keeps * keeps) * std::normal_distribution<>(0, 1)(random_);
  time_s_ = time_s;
  while (time_s >= dip_begin_s_) {
    dip_end_s_ = dip_begin_s_ + 0.05 + 0.45 * uniform();
    dip_ = std::pow(uniform(), 1 / pareto_);
    dip_begin_s_ = dip_end_s_ - std::log(uniform()) / dips_per_s_;
  }
  return std::exp(log_) * (time_s < dip_end_s_ ? dip_ : 1);
}

}  // namespace weft::fabric
