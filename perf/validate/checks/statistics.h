// The statistics that checks need: medians and fairness.
#pragma once

#include <vector>

namespace weft::fabric {

// 0 without values; the lower of the two middle ones for an even count.
double median_of(std::vector<double> values);

// Jain's index: 1 where all are equal, 1/n where one has everything. Source: DEC TR-301, 1984.
double jain_index(const std::vector<double>& values);

}  // namespace weft::fabric
