// From places to causes: what belongs to one cause is merged, and what follows from another cause
// is dropped. Pure.
#pragma once

#include <vector>

#include "perf/validate/locate/cause.h"
#include "perf/validate/locate/peel.h"
#include "perf/validate/probes/fabric.h"

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

}  // namespace weft::fabric
