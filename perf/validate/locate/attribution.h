// Explains flows that are out of line by as few places as possible. Pure; knows no probes.
//
// A fault can only make flows worse, and the worst place of a route decides: the rate of i -> j is
// the least of what i sends, the path carries and j receives. So a place is at fault where nearly
// all of its flows are bad. The place that explains most is taken first, its flows are set aside,
// and the rest is looked at again (greedy cover, R. Kompella et al., "Detection and localization of
// network black holes", INFOCOM 2007), with a robust likelihood in place of a count of bad flows.
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

// What one flow says of one quantity.
struct Observation {
  int from = 0, to = 0;  // ports, of one rail
  double value = 0;      // graded: the log of how much worse than the baseline; counted: events
  double trials = 1;     // counted: events and what were none
  int flow = -1;         // index into Samples::flows; -1: of none
  // Graded: the log of how much more than the flow's ends allow together the one end may carry. A
  // cut of that end shows in this flow less so much.
  double from_spare = 0, to_spare = 0;
  int label = 0;    // of the flow
  double at_s = 0;  // when it was seen, from the start of the run
  // Graded: how often a flow of healthy places is bad, where that is often; 0: seldom.
  double chance = 0;
};

// How observations are judged.
struct Scale {
  bool counted = false;
  bool directed = true;       // false: a flow speaks for both directions (round trips)
  double sigma = 0;           // graded: standard deviation of a healthy flow's value
  double baseline_error = 0;  // graded: standard deviation of what values are compared with
  double threshold = 0;       // the least level of a fault; counted: share of the trials
  double background = 0;      // counted: share of events in a healthy fabric
  double confidence = 0.95;   // of the intervals
  // Chance that one flow was bad for a reason that has passed. Hosts that share cores make this
  // larger: several flows in a row wait for the same core.
  double transient = 0.3;
};

// A place that explains bad flows. Without direction, ends are kPort and paths kPair.
struct Place {
  CausePlace place =
      CausePlace::kPort;  // kTransmit, kReceive, kPort, kPath, kPair, kRail, kFleet, kGroup
  Port port, peer;
  std::vector<Port> ports;              // of kGroup
  double level = 0, low = 0, high = 0;  // graded: median; counted: share; with its interval
  double confidence = 0;
  int flows = 0;
};

// A chance below kFalseAlarm (per call, Bonferroni over all places) of naming a place where values
// are normal with `sigma`, or events Poisson at `background`.
// Events of a flow come together: what one flow counts more unevenly than chance does counts less
// (quasi-Poisson: P. McCullagh, J. Nelder, "Generalized Linear Models", 1989, section 6.2.3).
// Where flows of healthy places are often bad, bad looks alone name a path (docs/statistics.md).
// Confidence of a place: agreeing * (1 - chance of noise) * (1 - transient^flows): the share of its
// flows that are bad, the tail of the normal or Poisson (Chernoff) law times the number of places,
// and the chance that each flow alone met something that has passed since.
std::vector<Place> attribute(const Shape& shape, std::span<const Observation> observations,
                             const Scale& scale);

enum class Look : char { kGood, kBad, kSetAside };  // of a flow

// Ports of one rail whose flows to the others are bad while those among themselves are not: what is
// behind one leaf switch. Flows of ends that are bad altogether do not count.
struct Group {
  std::vector<int> ports;         // sorted
  std::vector<int> observations;  // indices of those that cross the group's border
  int score = 0;  // bad flows that the group explains, less those that it does not; 0: none
};
// The group of all rails that explains most. looks[i] is that of observations[i].
Group find_group(const Shape& shape, std::span<const Observation> observations,
                 const std::vector<Look>& looks, bool directed);

}  // namespace weft::fabric
