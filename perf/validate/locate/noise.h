// The baseline of continuous observations (rates, latencies), and the noise of healthy flows. Pure.
#pragma once

#include <vector>

#include "perf/validate/locate/attribution.h"
#include "perf/validate/locate/observations.h"

namespace weft::fabric {

// Lower bounds of the noise, as standard deviations of a flow's value.
struct LeastNoise {
  double least = 0;  // lower bound in all cases
  // Lower bound if too few flows are as good as the baseline to estimate their noise.
  double of_few = 0;
  double of_windows = 0;  // lower bound from the windows of flows, until enough paths were repeated
};

// Returns the healthy level of log values; larger values are worse. It is the median of all values
// within the noise around the better quartile of the median port, so bad ports do not change it if
// they are fewer than half, however often they were measured.
double baseline_of(const std::vector<Observation>& observations);

// Subtracts the baseline of each rail from graded.observations, and sets graded.baseline, flows,
// sigma and baseline_error. Estimates the noise from the better half, which faults do not affect,
// and from repeated flows.
void settle(const Shape& shape, Graded& graded, const LeastNoise& floor);

}  // namespace weft::fabric
