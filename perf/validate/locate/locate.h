// Finds the places that explain the samples. Pure: no fabric, no clock.
//
// Model: log(rate of i -> j) = rail + min(transmit(i), path(i, j), receive(j)), fitted by robust
// medians (first the baseline of each rail, then the worst places in turn; see attribution.h),
// separately by direction and rail; latencies likewise, losses by event counts.
#pragma once

#include <vector>

#include "perf/validate/facts/policy.h"
#include "perf/validate/locate/cause.h"
#include "perf/validate/probes/fabric.h"
#include "perf/validate/probes/samples.h"

namespace weft::fabric {

// Returns causes, most certain first. Flows whose ends were starved of a core are ignored. Rates
// are compared with the baseline of their rail, and the baseline with the declared rates.
// Consequences of another cause (the low rate of a port that loses packets) are dropped.
std::vector<Cause> locate(const std::vector<FleetHost>& hosts, const Samples& samples,
                          const Thresholds& thresholds);

}  // namespace weft::fabric
