// Finds the places that explain the samples, and the next round that tells the leading places
// apart. Pure: no fabric, no clock.
//
// Model: log(rate of i -> j) = rail + the least of transmit(i), path(i, j) and receive(j), fitted
// by robust medians (the baseline of each rail first, then the worst places one after the other;
// see attribution.h), each direction and rail by itself; latency likewise, losses by counts.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "perf/validate/facts/policy.h"
#include "perf/validate/locate/cause.h"
#include "perf/validate/probes/fabric.h"
#include "perf/validate/probes/samples.h"

namespace weft::fabric {

// Causes, the surest first. Flows whose ends were starved of a core speak for nothing. Rates are
// judged against the baseline of their rail, and the baseline against the declared rates. What
// follows from another cause (the rate of a port that loses packets) is no cause of its own.
std::vector<Cause> locate(const std::vector<FleetHost>& hosts, const Samples& samples,
                          const Thresholds& thresholds);

// The round that best separates the leading causes (suspects against known-good partners); nothing
// where every cause is clear or no flow could tell more.
std::optional<Round> next_round(const std::vector<FleetHost>& hosts, const Samples& samples,
                                const std::vector<Cause>& causes, const Thresholds& thresholds,
                                int most_flows);

}  // namespace weft::fabric
