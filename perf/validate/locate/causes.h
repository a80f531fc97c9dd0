// From places to causes: what belongs to one cause is merged, and what follows from another cause
// is dropped. Pure.
#pragma once

#include <vector>

#include "perf/validate/facts/policy.h"
#include "perf/validate/locate/attribution.h"
#include "perf/validate/locate/cause.h"
#include "perf/validate/probes/fabric.h"
#include "perf/validate/probes/samples.h"

namespace weft::fabric {

// Merges places of one kind of cause: both directions of a port, all ports of a host, alike ports
// of a rail, both directions of a pair. `alike` says whether two levels may have one reason.
using Alike = bool (*)(double one, double other);
std::vector<Place> merge(const std::vector<FleetHost>& hosts, std::vector<Place> places,
                         Alike alike);

// Several paths of one end become that end: bursts hit some of its flows, and spare others.
void unite_paths(std::vector<Place>& places);
// Whether flows from -> to pass the place of the cause.
bool passes(const Cause& cause, Port from, Port to);

// Whether every flow of `inner` passes `outer`, and the two are as large: a port and a direction of
// that port, say, but not a rail and a port.
bool same_place(const Cause& outer, const Cause& inner);

// A slow receiver that slows flows to other ports, as PFC does when it pauses whole links. Flows to
// other ports are slow in rounds in which a flow goes to the receiver, and fast in other rounds.
struct Spread {
  Port receiver;
  std::vector<bool> rounds;  // by round: whether somebody sends to the receiver
  bool may_slow(const FlowSample& sample) const {
    return sample.flow.to != receiver && sample.flow.from != receiver &&
           rounds[static_cast<std::size_t>(sample.round)];
  }
};
std::vector<Spread> find_spreads(const std::vector<FleetHost>& hosts, const Samples& samples,
                                 const std::vector<Cause>& causes, const Thresholds& thresholds);
// The samples without the slow flows of kRate that a spread explains.
Samples without_victims(const std::vector<FleetHost>& hosts, const Samples& samples,
                        const std::vector<Spread>& spreads, const Thresholds& thresholds);

}  // namespace weft::fabric
