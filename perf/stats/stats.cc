// Computes percentiles, bandwidths and iteration counts. Does not measure.
#include "perf/stats/stats.h"

#include <algorithm>
#include <cmath>

namespace weft {

double percentile(std::span<const double> sorted, double p) {
  const auto rank = static_cast<std::size_t>(std::ceil(p / 100 * sorted.size()));
  return sorted[std::clamp<std::size_t>(rank, 1, sorted.size()) - 1];
}

double median(std::vector<double> samples) {
  std::sort(samples.begin(), samples.end());
  return percentile(samples, 50);
}

Summary summarize(std::vector<double> samples) {
  std::sort(samples.begin(), samples.end());
  return {samples.front(), percentile(samples, 50), percentile(samples, 99), samples.back()};
}

std::vector<double> slowest_rank(std::span<const std::vector<double>> times) {
  std::vector<double> slowest = times.front();
  for (const auto& rank : times)
    for (std::size_t i = 0; i < slowest.size(); ++i) slowest[i] = std::max(slowest[i], rank[i]);
  return slowest;
}

std::vector<double> times_of(std::span<const std::vector<double>> ranks, OfRanks which) {
  if (which == OfRanks::kFirst) return ranks.front();
  if (which == OfRanks::kMost) return slowest_rank(ranks);
  std::vector<double> times = ranks.front();
  for (std::size_t r = 1; r < ranks.size(); ++r)
    for (std::size_t i = 0; i < times.size(); ++i)
      times[i] = which == OfRanks::kMean ? times[i] + ranks[r][i] : std::min(times[i], ranks[r][i]);
  if (which == OfRanks::kMean)
    for (double& t : times) t /= static_cast<double>(ranks.size());
  return times;
}

IterationStats iteration_stats(std::vector<double> samples) {
  std::sort(samples.begin(), samples.end());
  IterationStats s;
  const auto n = static_cast<double>(samples.size());
  for (const double t : samples) s.mean += t / n;
  double squares = 0;
  for (const double t : samples) squares += (t - s.mean) * (t - s.mean);
  s.deviation = std::sqrt(squares / n);
  s.min = samples.front();
  s.max = samples.back();
  s.p50 = percentile(samples, 50);
  s.p95 = percentile(samples, 95);
  s.p99 = percentile(samples, 99);
  return s;
}

std::vector<bool> out_of_line(const std::vector<double>& values, bool high_is_bad) {
  if (values.empty()) return {};
  const double middle = median(values);
  std::vector<double> distances;
  for (const double v : values) distances.push_back(std::abs(v - middle));
  const double usual = 1.4826 * median(distances);
  std::vector<bool> marked;
  for (const double v : values) {
    const double worse = high_is_bad ? v - middle : middle - v;
    marked.push_back(worse > 0.1 * middle && worse > 3 * usual);
  }
  return marked;
}

double busbw_factor(Collective collective, int nranks) {
  const double n = nranks;
  switch (collective) {
    case Collective::kAllReduce:
      return 2 * (n - 1) / n;
    case Collective::kAllGather:
    case Collective::kReduceScatter:
    case Collective::kGather:
    case Collective::kScatter:
    case Collective::kAllToAll:
      return (n - 1) / n;
    case Collective::kBroadcast:
    case Collective::kReduce:
    case Collective::kSendRecv:
      return 1;
    case Collective::kBarrier:
      return 0;
  }
  return 0;
}

double algbw_gbps(std::uint64_t bytes, double time_us) {
  return time_us > 0 ? static_cast<double>(bytes) / (time_us * 1e3) : 0;
}

int iterations_for(double estimate_us, double budget_us) {
  if (estimate_us <= 0) return 2000;
  return static_cast<int>(std::clamp(budget_us / estimate_us, 5.0, 2000.0));
}

}  // namespace weft
