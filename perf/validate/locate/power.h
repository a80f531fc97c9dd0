// How far chance reaches, and what peel() would see beyond that. Pure. docs/statistics.md has the
// model.
#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "perf/validate/locate/peel.h"

namespace weft::fabric {

inline constexpr double kFalseAlarm = 1e-3;  // of a judgement, over all places
// Places are judged again as their flows come in, which are few times as many in the end as at
// first: as if each place were so many. Simulations of healthy fleets bear this out
// (docs/statistics.md).
inline constexpr double kJudged = 8;

// What `events` of a Poisson variable of that mean are worth: it reaches them with a chance of at
// most exp(-gain) (Chernoff).
double poisson_gain(double events, double mean);

// The variance of the events of these flows (indices of `sights`) over that of Poisson variables
// with that share of the trials; 1 where chance explains it.
double dispersion(std::span<const Sight> sights, const std::vector<int>& flows, double share);

// Standard deviation of the median of `flows` values that are normal with `sigma`, against what is
// usual, which is known with an error of its own.
double median_error(double sigma, std::size_t flows, double usual_error);

// The least level of an end with so many flows that peel() names with a chance of
// scale.confidence, where all other flows of `sights` are healthy.
double least_level(const Shape& shape, std::size_t sights, std::size_t flows, const Scale& scale);

// The least share of events at an end of so many trials that peel() names with a chance of
// scale.confidence, where all other flows of `sights` are healthy. At most 1.
double least_share(const Shape& shape, std::size_t sights, double trials, const Scale& scale);

}  // namespace weft::fabric
