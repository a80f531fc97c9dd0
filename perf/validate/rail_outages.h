// Gathers the rails that failed during a validation while other rails carried their messages.
#pragma once

#include <string>
#include <vector>

#include "coll/api/communicator.h"
#include "perf/validate/checks/finding.h"
#include "perf/validate/probes/samples.h"

namespace weft::fabric {

// The rail of an outage in which no rail failed, but no rail could stand in for another
// (Metrics::unheard).
inline constexpr int kNoRail = -1;
// An outage of a rail between two hosts, as a rank of `host` saw it.
struct RailOutage {
  int rail = 0;
  std::string host, other;
  bool back = false;  // the rail answers again
  std::string cause;
};

// Returns on rank 0 the outages that any rank has seen since the World was made, and notes reports
// of them that cannot be true; nothing elsewhere. Collective over the World.
std::vector<RailOutage> rail_outages(World& world, std::vector<FalseReport>& false_reports);
// The outages that rank `from` reports as a text. Pure.
std::vector<RailOutage> outages_from(const Topology& topology, Rank from, const std::string& text,
                                     std::vector<FalseReport>& false_reports);

// Returns a finding for each rail that failed, or for each host that all outages of a rail share.
std::vector<Finding> judge_outages(const std::vector<RailOutage>& outages);

}  // namespace weft::fabric
