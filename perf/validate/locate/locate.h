// Finds the places that explain the samples, and the next round that tells the leading places
// apart. Pure: no fabric, no clock.
//
// Model: log(rate of i -> j) = fleet + transmit(i) + receive(j) + path(i, j), fitted by a robust
// median polish, each direction and rail by itself; loss and latency likewise, additive.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "perf/validate/facts/policy.h"
#include "perf/validate/locate/cause.h"
#include "perf/validate/probes/fabric.h"
#include "perf/validate/probes/samples.h"

namespace weft::fabric {

// Causes, the surest first. Flows whose ends were starved of a core speak for nothing.
std::vector<Cause> locate(const std::vector<FleetHost>& hosts, const Samples& samples,
                          const Thresholds& thresholds);

// The round that best separates the leading causes (suspects against known-good partners); nothing
// where every cause is clear or no flow could tell more.
std::optional<Round> next_round(const std::vector<FleetHost>& hosts, const Samples& samples,
                                const std::vector<Cause>& causes, const Thresholds& thresholds,
                                int most_flows);

}  // namespace weft::fabric
