// The other flows on a flow's rails, and how often flows of healthy places are slow next to them:
// hashes put flows on the same link, and whole fleets have transient slowdowns. Pure.
#pragma once

#include <map>
#include <set>
#include <utility>
#include <vector>

#include "perf/validate/facts/policy.h"
#include "perf/validate/locate/attribution.h"
#include "perf/validate/probes/fabric.h"
#include "perf/validate/probes/samples.h"

namespace weft::fabric {

// Samples closer in time than this may hit the same slowdown, and are treated as one sample.
inline constexpr double kApart_s = 0.7;

class Company {
 public:
  explicit Company(const Samples& samples);
  // Returns whether no other flow of the sample's round uses the sample's rails.
  bool alone(const FlowSample& sample) const;

 private:
  std::map<std::pair<int, int>, int> flows_;  // number of flows, by round and rail
};

// Probability that a sample of a healthy place is bad; 0: as rare as in a quiet fleet.
struct Chance {
  double beside_others = 0, alone = 0;
  bool meet = false;  // flows collide, since fleet-wide slowdowns do not explain beside_others
};
inline constexpr double kLeastChance = 0.005;

// Returns the chances by rail, for kRate observations, which are bad from `bad_level` up. A fault
// of fewer than half of the ports does not affect the result.
std::vector<Chance> chances_of(const Shape& shape, const Samples& samples,
                               const std::vector<Observation>& observations, double bad_level);

// Returns slow flows at full speed, on rails with collisions, that may have collided.
std::set<const FlowSample*> met_others(const std::vector<FleetHost>& hosts, const Samples& samples,
                                       const Thresholds& thresholds);
// Drops losses of met_others() flows: collisions lose packets by design.
void drop_met(const std::vector<FleetHost>& hosts, const Samples& samples,
              const Thresholds& thresholds, std::vector<Observation>& losses);

// Returns the probability that a healthy place has all of these bad samples, given as (time,
// probability).
double chance_of_all(std::vector<std::pair<double, double>> looks);

}  // namespace weft::fabric
