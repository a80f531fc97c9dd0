// Estimates the baseline of continuous observations (rates, latencies) and the noise of healthy
// flows.
#include "perf/validate/locate/noise.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <map>
#include <unordered_map>
#include <utility>

#include "perf/validate/locate/power.h"
#include "perf/validate/probes/statistics.h"

namespace weft::fabric {
namespace {

constexpr int kFewFlows = 8;  // fewer cannot show their noise
// Number of differences from which differences are preferred to windows of flows.
constexpr std::size_t kEnoughDifferences = 8;

std::uint64_t path_of(const Observation& s) {
  return static_cast<std::uint64_t>(s.from) << 32 | static_cast<std::uint64_t>(s.to);
}

// Returns the standard deviation of normal values, from the half better than the median, since
// faults may affect the other half. 1.4826: standard deviation / median absolute value of a normal
// variable.
double better_half_sigma(const std::vector<double>& values, double median) {
  std::vector<double> better;
  for (const double value : values)
    if (value <= median) better.push_back(median - value);
  return better.empty() ? 0 : 1.4826 * quantile(better, 0.5);
}

// Standard deviation of normal values, from consecutive values of one path. Unlike the better half,
// these include noise that only slows flows, such as a tester's waits for cores.
struct Repeated {
  double sigma = 0;             // 0: too few differences
  std::size_t differences = 0;  // between flows of one path
};
Repeated repeated_sigma(const std::vector<Observation>& observations) {
  constexpr std::size_t kLeastDifferences = 4;
  std::unordered_map<std::uint64_t, double> last;
  std::vector<double> differences;
  for (const Observation& s : observations) {
    const auto [before, first] = last.try_emplace(path_of(s), s.value);
    if (!first) differences.push_back(std::abs(s.value - std::exchange(before->second, s.value)));
  }
  // 1.0483: standard deviation / median absolute difference of two normal variables.
  const std::size_t count = differences.size();
  return {count < kLeastDifferences ? 0 : 1.0483 * quantile(differences, 0.5), count};
}

}  // namespace

double baseline_of(const std::vector<Observation>& observations) {
  constexpr int kIterations = 6;
  constexpr double kNear = 2.5, kLeastNear = 0.07, kMostNear = 0.15;  // kNear: in sigmas
  std::unordered_map<std::uint64_t, std::vector<double>> by_path;
  for (const Observation& s : observations) by_path[path_of(s)].push_back(s.value);
  std::vector<double> paths;
  std::map<int, std::vector<double>> by_sender;
  std::size_t fewest = observations.size();
  for (auto& [path, values] : by_path) {
    fewest = std::min(fewest, values.size());
    paths.push_back(quantile(values, 0.5));
    by_sender[static_cast<int>(path >> 32)].push_back(paths.back());
  }
  std::vector<double> better, near;
  for (auto& [port, values] : by_sender) better.push_back(quantile(values, 0.25));
  double baseline = quantile(better, 0.5);
  const double noise = median_error(repeated_sigma(observations).sigma, fewest, 0);  // of a path
  for (int again = 0; again < kIterations; ++again) {
    const double reach = kNear * std::max(noise, better_half_sigma(paths, baseline));
    near.clear();
    for (const double value : paths)
      if (value <= baseline + std::clamp(reach, kLeastNear, kMostNear)) near.push_back(value);
    if (!near.empty()) baseline = quantile(near, 0.5);
  }
  return baseline;
}

void settle(const Shape& shape, Graded& graded, const LeastNoise& floor) {
  std::vector<std::vector<Observation>> rails(static_cast<std::size_t>(shape.rails));
  for (const Observation& s : graded.observations)
    rails[static_cast<std::size_t>(shape.port(s.from).rail)].push_back(s);
  std::size_t fewest = graded.observations.size();
  for (const std::vector<Observation>& rail : rails) {
    graded.baseline.push_back(rail.empty() ? 0 : baseline_of(rail));
    graded.flows.push_back(static_cast<int>(rail.size()));
    if (!rail.empty()) fewest = std::min(fewest, rail.size());
  }
  std::vector<double> values;
  for (Observation& s : graded.observations) {
    s.value -= graded.baseline[static_cast<std::size_t>(shape.port(s.from).rail)];
    values.push_back(s.value);
  }
  const auto better = std::ranges::count_if(values, [](double value) { return value <= 0; });
  const Repeated repeated = repeated_sigma(graded.observations);
  const double windows = repeated.differences < kEnoughDifferences ? floor.of_windows : 0;
  graded.sigma = std::max({better_half_sigma(values, 0), repeated.sigma, windows,
                           better < kFewFlows ? floor.of_few : floor.least});
  graded.baseline_error = fewest > 0 ? median_error(graded.sigma, fewest, 0) : 0;
}

}  // namespace weft::fabric
