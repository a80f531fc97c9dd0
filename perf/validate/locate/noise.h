// The baseline among graded observations, and how far healthy ones lie from that. Pure.
#pragma once

#include <vector>

#include "perf/validate/locate/attribution.h"
#include "perf/validate/locate/observations.h"

namespace weft::fabric {

// The noise that is assumed at least, as standard deviations of a flow's value.
struct LeastNoise {
  double least = 0;   // always
  double of_few = 0;  // where few flows are as good as the baseline: these do not tell their noise
  double of_windows = 0;  // what the windows of a flow say, until paths were measured often enough
};

// Returns the healthy level of log values; larger values are worse. Bad ports do not move it while
// they are fewer than half, however often they were measured: it starts from the median port's
// better quarter, and is the median of all values within the noise of that.
double baseline_of(const std::vector<Observation>& observations);

// Subtracts the baseline of each rail from graded.observations, and fills in graded.baseline,
// flows, sigma and baseline_error. The noise is that of the better half, which no fault can have
// touched, and of flows that were repeated.
void settle(const Shape& shape, Graded& graded, const LeastNoise& floor);

}  // namespace weft::fabric
