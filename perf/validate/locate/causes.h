// From places to causes: merges parts of one cause and drops consequences of other causes. Pure.
#pragma once

#include <vector>

#include "perf/validate/facts/policy.h"
#include "perf/validate/locate/attribution.h"
#include "perf/validate/locate/cause.h"
#include "perf/validate/probes/fabric.h"
#include "perf/validate/probes/samples.h"

namespace weft::fabric {

// Merges places of one kind of cause: both directions of a port, all ports of a host, similar ports
// of a rail, both directions of a pair. `alike` returns whether two levels may have one reason.
using Alike = bool (*)(double one, double other);
std::vector<Place> merge(const std::vector<FleetHost>& hosts, std::vector<Place> places,
                         Alike alike);

// Replaces several bad paths of one end by the end, since loss bursts hit only some of its flows.
void unite_paths(std::vector<Place>& places);
// Returns whether flows from -> to cross the place of the cause.
bool passes(const Cause& cause, Port from, Port to);

// Drops causes that other causes explain, such as the low rate of a port that loses packets.
void drop_consequences(const std::vector<FleetHost>& hosts, const Samples& samples,
                       std::vector<Cause>& causes);

// A slow receiver whose congestion spreads to flows to other ports, for example by PFC. These flows
// are slow in rounds with a flow to the receiver, and fast in other rounds.
struct Spread {
  Port receiver;
  std::vector<bool> rounds;  // by round: whether the round has a flow to the receiver
  bool may_slow(const FlowSample& sample) const {
    return sample.flow.to != receiver && sample.flow.from != receiver &&
           rounds[static_cast<std::size_t>(sample.round)];
  }
};
std::vector<Spread> find_spreads(const std::vector<FleetHost>& hosts, const Samples& samples,
                                 const std::vector<Cause>& causes, const Thresholds& thresholds);
// Returns the samples without the slow kRate flows that a spread explains.
Samples without_victims(const std::vector<FleetHost>& hosts, const Samples& samples,
                        const std::vector<Spread>& spreads, const Thresholds& thresholds);

}  // namespace weft::fabric
