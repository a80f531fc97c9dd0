// What else a rail carries while a flow runs, and how often flows of healthy places are slow in
// such company: flows meet on links that a hash chooses, and whole fleets have bad moments. Pure.
#pragma once

#include <map>
#include <utility>
#include <vector>

#include "perf/validate/locate/attribution.h"
#include "perf/validate/probes/samples.h"

namespace weft::fabric {

// Looks that begin closer to each other may meet the same bad moment, and count as one.
inline constexpr double kApart_s = 0.7;

class Company {
 public:
  explicit Company(const Samples& samples);
  // No other flow of its round has a port on its rails.
  bool alone(const FlowSample& sample) const;

 private:
  std::map<std::pair<int, int>, int> flows_;  // of a round and rail
};

// How often a look at a healthy place is bad; 0: as seldom as in a quiet fleet.
struct Chance {
  double beside_others = 0, alone = 0;
  bool meet = false;  // of flows beside others, and not because of moments that are bad for all
};
inline constexpr double kLeastChance = 0.005;

// By rail, of observations of Probe::kRate that are bad from `bad_level` on. No fault of fewer than
// half of the ports changes the chances.
std::vector<Chance> chances_of(const Shape& shape, const Samples& samples,
                               const std::vector<Observation>& observations, double bad_level);

// The chance that a healthy place has all of these bad looks: (time, chance of each).
double chance_of_all(std::vector<std::pair<double, double>> looks);

}  // namespace weft::fabric
