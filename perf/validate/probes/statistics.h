// Statistics shared by plans, localization and checks. Pure.
#pragma once

#include <vector>

namespace weft::fabric {

// z with P(N(0, 1) <= z) = p, for 0 < p < 1. P. Acklam's rational approximation, relative error
// below 1.2e-9.
double normal_quantile(double p);
// P(N(0, 1) > z).
double normal_tail(double z);

struct Interval {
  double low = 0, high = 0;
};
// Returns the two-sided Wilson score interval of a proportion. E. B. Wilson, "Probable inference",
// JASA 1927.
Interval wilson(double events, double trials, double confidence);

// Returns the quantile `at` (0 to 1) of `values`, without interpolation; reorders them. `values`
// must not be empty.
double quantile(std::vector<double>& values, double at);

// 0 if empty; the lower of the two middle values for an even count.
double median_of(std::vector<double> values);

}  // namespace weft::fabric
