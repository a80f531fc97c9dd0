// Formulas of statistics.h.
#include "perf/validate/checks/statistics.h"

#include <algorithm>
#include <cstddef>

namespace weft::fabric {
double median_of(std::vector<double> values) {
  if (values.empty()) return 0;
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>((values.size() - 1) / 2);
  std::ranges::nth_element(values, middle);
  return *middle;
}

double jain_index(const std::vector<double>& values) {
  double sum = 0, squares = 0;
  for (const double value : values) {
    sum += value;
    squares += value * value;
  }
  return squares > 0 ? sum * sum / (static_cast<double>(values.size()) * squares) : 0;
}

}  // namespace weft::fabric
