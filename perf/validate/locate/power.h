// The limits of what chance explains, and the smallest faults that attribute() names beyond them.
// Pure. docs/statistics.md has the model.
#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "perf/validate/facts/policy.h"
#include "perf/validate/locate/attribution.h"
#include "perf/validate/probes/fabric.h"
#include "perf/validate/probes/samples.h"

namespace weft::fabric {

inline constexpr double kFalseAlarm = 1e-3;  // of a judgement, over all places
// attribute() judges the places again whenever further flows come in, until each place has at most
// four times its first flows. Multiplying the number of places by this factor pays for that;
// simulations of healthy fleets confirm it (docs/statistics.md).
inline constexpr double kJudged = 8;

// What `events` of a Poisson variable of that mean are worth: it reaches them with a chance of at
// most exp(-gain) (Chernoff).
double poisson_gain(double events, double mean);

// The variance of the events of these flows (indices of `observations`) over that of Poisson
// variables with that share of the trials; 1 where chance explains it.
double dispersion(std::span<const Observation> observations, const std::vector<int>& flows,
                  double share);

// Standard deviation of the median of `flows` values that are normal with `sigma`, against the
// baseline, which is known with an error of its own.
double median_error(double sigma, std::size_t flows, double baseline_error);

// The smallest level that attribute() names with a probability of scale.confidence at an end that
// has `flows` flows, where all other flows of `observations` are healthy.
double least_level(const Shape& shape, std::size_t observations, std::size_t flows,
                   const Scale& scale);

// The smallest share of events that attribute() names with a probability of scale.confidence at an
// end that has `trials` trials, where all other flows of `observations` are healthy. At most 1.
double least_share(const Shape& shape, std::size_t observations, double trials, const Scale& scale);

// The least share of the time for which a fault must be there to be named with the policy's
// confidence, by the looks of the end that has fewest; 1: no share would do.
double smallest_share(const std::vector<FleetHost>& hosts, const Samples& samples,
                      const Thresholds& thresholds);

}  // namespace weft::fabric
