// Gathers the rails that failed during a validation while other rails carried their messages.
#pragma once

#include <string>
#include <vector>

#include "coll/api/communicator.h"
#include "perf/validate/probes/samples.h"

namespace weft::fabric {

// Returns on rank 0 the outages that any rank has seen since the World was made, and notes reports
// of them that cannot be true; nothing elsewhere. Collective over the World.
std::vector<RailOutage> rail_outages(World& world, std::vector<FalseReport>& false_reports);
// The outages that rank `from` reports as a text. Pure.
std::vector<RailOutage> outages_from(const Topology& topology, Rank from, const std::string& text,
                                     std::vector<FalseReport>& false_reports);

}  // namespace weft::fabric
