// Poisson and normal distributions, and the smallest faults that stand out from them.
#include "perf/validate/locate/power.h"

#include <algorithm>
#include <cmath>
#include <map>

#include "perf/validate/locate/intermittent.h"
#include "perf/validate/locate/observations.h"
#include "perf/validate/probes/statistics.h"

namespace weft::fabric {

double poisson_gain(double events, double mean) {
  return events * std::log(events / mean) - (events - mean);
}

double dispersion(std::span<const Observation> observations, const std::vector<int>& flows,
                  double share) {
  double squares = 0;
  for (const int f : flows) {
    const Observation& s = observations[static_cast<std::size_t>(f)];
    squares += (s.value - share * s.trials) * (s.value - share * s.trials) / (share * s.trials);
  }
  const auto k = static_cast<double>(flows.size()) - 1;
  // The 95 % quantile of chi-squared (E. Wilson, M. Hilferty, 1931).
  const double v = 2 / (9 * k), quantile = k * std::pow(1 - v + 1.645 * std::sqrt(v), 3);
  return k < 1 || squares <= quantile ? 1 : squares / k;
}

// 1.2533 sigma / sqrt k for large k; the median of two values is one of the two.
double median_error(double sigma, std::size_t flows, double baseline_error) {
  const double own = sigma * (flows < 3 ? 1 : 1.2533 / std::sqrt(static_cast<double>(flows)));
  return std::hypot(own, baseline_error);
}

double least_level(const Shape& shape, std::size_t observations, std::size_t flows,
                   const Scale& scale) {
  const double error = median_error(scale.sigma, flows, scale.baseline_error);
  const double places = kJudged * (1 + 2.0 * shape.ports() + static_cast<double>(observations));
  const double beyond_noise = error * normal_quantile(1 - kFalseAlarm / places);
  return std::max(scale.threshold, beyond_noise) + error * normal_quantile(scale.confidence);
}

double least_share(const Shape& shape, std::size_t observations, double trials,
                   const Scale& scale) {
  if (trials < 1) return 1;
  const double places = kJudged * (1 + 3.0 * shape.ports() + static_cast<double>(observations));
  const double mean = trials * scale.background;
  double events = std::floor(mean) + 1;
  while (places * std::exp(-poisson_gain(events, mean)) > kFalseAlarm ||
         wilson(events, trials, scale.confidence).low <= scale.threshold) {
    if (events >= trials) return 1;
    ++events;
  }
  // The probability that a Poisson variable with this mean stays below `events`.
  const auto missed = [&](double share) {
    double term = std::exp(-share * trials), sum = 0;
    for (double e = 0; e < events; term *= share * trials / ++e) sum += term;
    return sum;
  };
  // Half of the miss probability is for flows that look uneven by chance (see dispersion()).
  double low = 0, high = 1;
  if (trials > 700) high = std::min(1.0, 700 / trials);  // exp() underflows beyond that
  // For many events the Poisson distribution is nearly normal.
  if (events > 400) {
    const double z = normal_quantile((1 + scale.confidence) / 2);
    return std::min(1.0, (events + z * std::sqrt(events) + z * z) / trials);
  }
  for (int i = 0; i < 60; ++i)
    (missed((low + high) / 2) > (1 - scale.confidence) / 2 ? low : high) = (low + high) / 2;
  return high;
}

double smallest_share(const std::vector<FleetHost>& hosts, const Samples& samples,
                      const Thresholds& thresholds) {
  const Shape shape = shape_of(hosts);
  const Graded graded = rate_observations(hosts, samples, thresholds);
  std::map<int, int> looks;  // number of samples of an end
  for (int h = 0; h < shape.hosts; ++h)
    for (int r = 0; r < static_cast<int>(hosts[static_cast<std::size_t>(h)].ports.size()); ++r)
      looks[shape.index({h, r})] = looks[shape.ports() + shape.index({h, r})] = 0;
  for (const Observation& s : graded.observations) {
    ++looks[s.from];
    ++looks[shape.ports() + s.to];
  }
  int fewest = looks.empty() ? 0 : looks.begin()->second;
  for (const auto& [end, count] : looks) fewest = std::min(fewest, count);
  if (fewest == 0) return 1;
  // One bad sample selects the place; then the sequential test misses it with probability kMissed.
  const double unselected = 1 - thresholds.confidence / (1 - kMissed);
  return unselected <= 0 ? 1 : std::max(kShareToSee, 1 - std::pow(unselected, 1.0 / fewest));
}

}  // namespace weft::fabric
