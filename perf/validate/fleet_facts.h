// Validates facts from the agents of hosts against the job's topology. The text comes from another
// machine: impossible values become a FalseReport, not an error. Pure.
#pragma once

#include <string>
#include <vector>

#include "perf/validate/facts/facts.h"
#include "perf/validate/probes/samples.h"
#include "topo/topology.h"

namespace weft::fabric {

// Returns the facts that the agent of a host reports. If the text is malformed, the result has no
// ports; name and ranks of the host always come from the topology.
HostFacts facts_of_host(const Topology& topology, int host, const std::string& text,
                        std::vector<FalseReport>& false_reports);

// Restores the first readings from before the run, and records a false report if `now` has others.
void keep_first_readings(const HostFacts& first, HostFacts& now,
                         std::vector<FalseReport>& false_reports);

}  // namespace weft::fabric
