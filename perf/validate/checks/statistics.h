// The statistics that checks need: intervals of shares, medians, fairness.
#pragma once

#include <vector>

namespace weft::fabric {

struct Interval {
  double low = 0, high = 0;
};

// Wilson's interval of the share events / trials, to which the true share belongs with the given
// confidence (0 to 1). No trials: 0 to 1. Source: Wilson 1927, JASA 22.
Interval share_interval(double events, double trials, double confidence);

// 0 without values; the lower of the two middle ones for an even count.
double median_of(std::vector<double> values);

// Jain's index: 1 where all are equal, 1/n where one has everything. Source: DEC TR-301, 1984.
double jain_index(const std::vector<double>& values);

}  // namespace weft::fabric
