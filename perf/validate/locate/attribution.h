// Attributes bad flows to as few places as possible. Pure functions, independent of the probes.
//
// A fault can only make flows worse, and the worst place of a route decides: the rate of i -> j is
// the minimum of what i sends, the path carries and j receives. So a place is at fault if nearly
// all of its flows are bad. A greedy cover (R. Kompella et al., "Detection and localization of
// network black holes", INFOCOM 2007) takes the place that explains most, removes its flows and
// repeats. A robust likelihood ranks the places, not a count of bad flows.
#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "perf/validate/locate/cause.h"

namespace weft::fabric {

// Numbers ports: host * rails + rail.
struct Shape {
  int hosts = 0, rails = 0;
  int ports() const { return hosts * rails; }
  int index(Port port) const { return port.host * rails + port.rail; }
  Port port(int index) const { return {index / rails, index % rails}; }
};

// The value of one quantity for one flow.
struct Observation {
  int from = 0, to = 0;  // numbers of ports (see Shape), both of one rail
  double value = 0;      // Scale::counted: events; else log(how much worse than the baseline)
  double trials = 1;     // Scale::counted: all trials, with or without an event
  int flow = -1;         // index into Samples::flows; -1: none
  // For rates: log(expected rate of one end / expected rate of the flow). A cut of that end's rate
  // slows this flow by this much less.
  double from_spare = 0, to_spare = 0;
  int label = 0;    // label of the flow
  double at_s = 0;  // time of the measurement, from the start of the run
  // For rates: probability that a flow of healthy places is bad, if such flows are frequent; 0:
  // rare.
  double chance = 0;
};

// Parameters of the attribution.
struct Scale {
  bool counted = false;
  bool directed = true;       // false: a flow is evidence for both directions (round trips)
  double sigma = 0;           // standard deviation of a healthy flow's value; not for event counts
  double baseline_error = 0;  // standard deviation of the baseline; not for event counts
  double threshold = 0;       // smallest level of a fault; for event counts: events per trial
  double background = 0;      // for event counts: events per trial in a healthy fabric
  double confidence = 0.95;   // confidence of the intervals
  // Probability that a flow was bad for a transient reason. Larger for hosts that share cores:
  // several consecutive flows wait for the same core.
  double transient = 0.3;
};

// A place that explains bad flows. If Scale::directed is false, ends are kPort and paths kPair.
struct Place {
  CausePlace place =
      CausePlace::kPort;  // kTransmit, kReceive, kPort, kPath, kPair, kRail, kFleet, kGroup
  Port port, peer;
  std::vector<Port> ports;              // the ports of a kGroup
  double level = 0, low = 0, high = 0;  // median, or events per trial; and its confidence interval
  double confidence = 0;
  int flows = 0;
};

// The probability of naming a place if values are normal with `sigma`, or events Poisson at
// `background`, is below kFalseAlarm (per call, Bonferroni over all places). Events of a flow are
// correlated: counts that vary more than chance explains have less weight (quasi-Poisson: P.
// McCullagh, J. Nelder, "Generalized Linear Models", 1989, section 6.2.3). If flows of healthy
// places are often bad, a path is named only if all its flows are bad (docs/statistics.md).
// Confidence of a place: agreeing * (1 - noise) * (1 - transient^flows), with the fraction of bad
// flows, the normal or Poisson (Chernoff) tail times the number of places, and the probability that
// all flows were bad for transient reasons.
std::vector<Place> attribute(const Shape& shape, std::span<const Observation> observations,
                             const Scale& scale);

enum class Look : char { kGood, kBad, kSetAside };  // state of a flow; kSetAside: already explained

// The ports behind one leaf switch: flows between these ports are good, and their flows to other
// ports of the rail are bad. Ignores flows of ends that are bad by themselves.
struct Group {
  std::vector<int> ports;         // sorted
  std::vector<int> observations;  // indices of flows across the group's border
  // Bad flows that the group explains minus other bad flows; 0: no group.
  int score = 0;
};
// Returns the group that explains most, over all rails. looks[i] is the state of observations[i].
Group find_group(const Shape& shape, std::span<const Observation> observations,
                 const std::vector<Look>& looks, bool directed);

}  // namespace weft::fabric
