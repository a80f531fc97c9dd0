// Significance limits, and the smallest faults that attribute() names. Pure. docs/statistics.md has
// the model.
#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "perf/validate/facts/policy.h"
#include "perf/validate/locate/attribution.h"
#include "perf/validate/probes/fabric.h"
#include "perf/validate/probes/samples.h"

namespace weft::fabric {

// Probability of a false alarm per judgment, over all places.
inline constexpr double kFalseAlarm = 1e-3;
// attribute() runs again each time more flows arrive; a place may end with up to four times its
// initial number of flows. Multiplying the number of places by this factor corrects for the
// repeated tests; simulations of healthy fleets confirm it (docs/statistics.md).
inline constexpr double kJudged = 8;

// Returns the evidence of `events` of a Poisson variable with this mean: P(X >= events) <=
// exp(-gain) (Chernoff).
double poisson_gain(double events, double mean);

// Returns the variance of the events of these flows (indices of `observations`) relative to Poisson
// variables with `share` events per trial; 1 if chance explains it.
double dispersion(std::span<const Observation> observations, const std::vector<int>& flows,
                  double share);

// Returns the standard deviation of the median of `flows` values that are normal with `sigma`,
// relative to a baseline with an error of its own.
double median_error(double sigma, std::size_t flows, double baseline_error);

// Returns the smallest level that attribute() names with probability scale.confidence at an end
// with `flows` flows, if all other flows of `observations` are healthy.
double least_level(const Shape& shape, std::size_t observations, std::size_t flows,
                   const Scale& scale);

// Returns the smallest fraction of events that attribute() names with probability scale.confidence
// at an end with `trials` trials, if all other flows of `observations` are healthy. At most 1.
double least_share(const Shape& shape, std::size_t observations, double trials, const Scale& scale);

// Returns the smallest fraction of the time for which a fault must be present to be named with the
// policy's confidence, for the end with the fewest samples; 1: no fraction suffices.
double smallest_share(const std::vector<FleetHost>& hosts, const Samples& samples,
                      const Thresholds& thresholds);

}  // namespace weft::fabric
