// Processes in virtual time: when a fault is active, and how rates fluctuate.
#pragma once

#include <cstdint>
#include <random>

#include "perf/validate/worlds/world.h"

namespace weft::fabric {

// Whether an injected fault is active at a given time. Times must not decrease.
class SpellClock {
 public:
  SpellClock(const Spells& spells, std::uint64_t seed);
  bool at(double time_s);

 private:
  double between(double low, double high) {
    return std::uniform_real_distribution<>(low, high)(random_);
  }
  Spells spells_;
  std::mt19937_64 random_;
  double begin_s_, end_s_, next_s_;
};

// A factor on rates that fluctuates (its logarithm is an Ornstein-Uhlenbeck process) and dips.
// Times must not decrease.
class Wander {
 public:
  Wander(double deviation, double correlation_s, double dips_per_s, double pareto,
         std::uint64_t seed);
  double at(double time_s);

 private:
  double uniform() { return std::uniform_real_distribution<>(1e-9, 1)(random_); }
  const double deviation_, correlation_s_, dips_per_s_, pareto_;
  std::mt19937_64 random_;
  double time_s_ = 0, log_ = 0, dip_ = 1, dip_begin_s_, dip_end_s_ = 0;
};

}  // namespace weft::fabric
