// Facts as the agents of hosts report them, held against what the job knows of these hosts. Another
// machine wrote the text: what cannot be true becomes a FalseReport, and no error. Pure.
#pragma once

#include <string>
#include <vector>

#include "perf/validate/facts/facts.h"
#include "perf/validate/probes/samples.h"
#include "topo/topology.h"

namespace weft::fabric {

// The facts that the agent of such a host reports. Where the text is no facts, the host has no
// ports in the result; its name and its ranks are always those of the topology.
HostFacts facts_of_host(const Topology& topology, int host, const std::string& text,
                        std::vector<FalseReport>& false_reports);

// Notes where the readings before the run are no longer what the host had reported at first, and
// restores those.
void keep_first_readings(const HostFacts& first, HostFacts& now,
                         std::vector<FalseReport>& false_reports);

}  // namespace weft::fabric
