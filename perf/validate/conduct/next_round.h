// The next round that distinguishes the leading causes. Pure: no fabric, no clock.
#pragma once

#include <optional>
#include <vector>

#include "perf/validate/facts/policy.h"
#include "perf/validate/locate/cause.h"
#include "perf/validate/probes/fabric.h"
#include "perf/validate/probes/samples.h"

namespace weft::fabric {

// Maximum samples of a cause that remains unclear, or of a port with few peers.
inline constexpr int kMostSamples = 12;

// Returns the round that best separates the leading causes (suspects with known-good partners);
// nullopt if every cause is clear or no flow would add information.
std::optional<Round> next_round(const std::vector<FleetHost>& hosts, const Samples& samples,
                                const std::vector<Cause>& causes, const Thresholds& thresholds,
                                int most_flows);

}  // namespace weft::fabric
