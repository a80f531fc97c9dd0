// Normal quantiles, the Wilson interval and order statistics.
#include "perf/validate/probes/statistics.h"

#include <algorithm>
#include <cmath>

namespace weft::fabric {

double normal_quantile(double p) {
  constexpr double a[] = {-3.969683028665376e+01, 2.209460984245205e+02,  -2.759285104469687e+02,
                          1.383577518672690e+02,  -3.066479806614716e+01, 2.506628277459239e+00};
  constexpr double b[] = {-5.447609879822406e+01, 1.615858368580409e+02, -1.556989798598866e+02,
                          6.680131188771972e+01, -1.328068155288572e+01};
  constexpr double c[] = {-7.784894002430293e-03, -3.223964580411365e-01, -2.400758277161838e+00,
                          -2.549732539343734e+00, 4.374664141464968e+00,  2.938163982698783e+00};
  constexpr double d[] = {7.784695709041462e-03, 3.224671290700398e-01, 2.445134137142996e+00,
                          3.754408661907416e+00};
  constexpr double kTail = 0.02425;
  const auto tail = [&](double q) {
    return (((((c[0] * q + c[1]) * q + c[2]) * q + c[3]) * q + c[4]) * q + c[5]) /
           ((((d[0] * q + d[1]) * q + d[2]) * q + d[3]) * q + 1);
  };
  if (p < kTail) return tail(std::sqrt(-2 * std::log(p)));
  if (p > 1 - kTail) return -tail(std::sqrt(-2 * std::log(1 - p)));
  const double q = p - 0.5, r = q * q;
  return (((((a[0] * r + a[1]) * r + a[2]) * r + a[3]) * r + a[4]) * r + a[5]) * q /
         (((((b[0] * r + b[1]) * r + b[2]) * r + b[3]) * r + b[4]) * r + 1);
}

double normal_tail(double z) { return 0.5 * std::erfc(z / std::sqrt(2.0)); }

Interval wilson(double events, double trials, double confidence) {
  if (trials <= 0) return {0, 1};
  const double z = normal_quantile(0.5 + confidence / 2), share = events / trials;
  const double z2 = z * z / trials, middle = (share + z2 / 2) / (1 + z2);
  const double half = z / (1 + z2) * std::sqrt(share * (1 - share) / trials + z2 / (4 * trials));
  return {std::max(0.0, middle - half), std::min(1.0, middle + half)};
}

double quantile(std::vector<double>& values, double at) {
  const auto last = static_cast<double>(values.size() - 1);
  const auto nth = values.begin() + static_cast<std::ptrdiff_t>(std::floor(at * last + 1e-9));
  std::nth_element(values.begin(), nth, values.end());
  return *nth;
}

double median_of(std::vector<double> values) {
  if (values.empty()) return 0;
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>((values.size() - 1) / 2);
  std::ranges::nth_element(values, middle);
  return *middle;
}

}  // namespace weft::fabric
