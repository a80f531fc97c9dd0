// Gathers the rails that failed during a validation while other rails took over their messages.
#pragma once

#include <string>
#include <vector>

#include "coll/api/communicator.h"
#include "perf/validate/probes/samples.h"

namespace weft::fabric {

// Returns on rank 0 the outages that any rank has observed since the World was created, and records
// impossible reports of them; empty on other ranks. Collective over the World.
std::vector<RailOutage> rail_outages(World& world, std::vector<FalseReport>& false_reports);
// Parses the outages that rank `from` reports. Pure.
std::vector<RailOutage> outages_from(const Topology& topology, Rank from, const std::string& text,
                                     std::vector<FalseReport>& false_reports);

}  // namespace weft::fabric
