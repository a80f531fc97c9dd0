// Formulas of statistics.h.
#include "perf/validate/checks/statistics.h"

#include <algorithm>
#include <cmath>
#include <cstddef>

namespace weft::fabric {
namespace {

// The z for which a normal variable lies in [-z, z] with this probability, by bisection of erf.
double two_sided_quantile(double confidence) {
  double low = 0, high = 10;
  for (int i = 0; i < 60; ++i) {
    const double middle = (low + high) / 2;
    (std::erf(middle / std::sqrt(2.0)) < confidence ? low : high) = middle;
  }
  return (low + high) / 2;
}

}  // namespace

Interval share_interval(double events, double trials, double confidence) {
  if (trials <= 0) return {0, 1};
  const double share = std::clamp(events / trials, 0.0, 1.0);
  const double z = two_sided_quantile(confidence), per_trial = z * z / trials;
  const double centre = share + per_trial / 2;
  const double half = z * std::sqrt(share * (1 - share) / trials + per_trial / (4 * trials));
  const double low = (centre - half) / (1 + per_trial), high = (centre + half) / (1 + per_trial);
  return {events <= 0 ? 0 : std::max(0.0, low), std::min(1.0, high)};
}

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
