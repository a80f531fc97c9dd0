// Statistics over samples, and bandwidth as nccl-tests defines it.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "coll/types.h"

namespace weft {

// Returns the p-th percentile, 0 < p <= 100, by nearest rank: always one of the samples. `sorted`
// is ascending and not empty.
double percentile(std::span<const double> sorted, double p);
double median(std::vector<double> samples);  // the lower of the middle two for an even count

struct Summary {
  double min = 0, p50 = 0, p99 = 0, max = 0;
};
Summary summarize(std::vector<double> samples);  // not empty

// Returns each operation's time on its slowest rank. times[r][i] is iteration i on rank r; every
// rank has the same number of samples.
std::vector<double> slowest_rank(std::span<const std::vector<double>> times);

// How to combine the times of several ranks for one operation.
enum class OfRanks { kFirst, kMean, kLeast, kMost };
// Returns each operation's time on rank 0, or the mean, minimum or maximum over all ranks.
std::vector<double> times_of(std::span<const std::vector<double>> ranks, OfRanks which);

// Statistics of nccl-tests over the iterations of a row.
struct IterationStats {
  double min = 0, max = 0, mean = 0, p50 = 0, p95 = 0, p99 = 0, deviation = 0;
  // Deviation in percent of the mean.
  double percent() const { return mean > 0 ? 100 * deviation / mean : 0; }
};
IterationStats iteration_stats(std::vector<double> samples);  // not empty

// Marks outliers: values worse than the median by more than a tenth, and by more than three times
// the typical deviation (1.4826 x the median distance from it).
std::vector<bool> out_of_line(const std::vector<double>& values, bool high_is_bad);

// Returns the factor in busbw = algbw * factor.
double busbw_factor(Collective collective, int nranks);
// Returns algbw = bytes / time, in GB/s (10^9 B/s). `bytes` is the size of the whole buffer.
double algbw_gbps(std::uint64_t bytes, double time_us);

// Returns how many iterations of `estimate_us` fill `budget_us`, between 5 and 2000.
int iterations_for(double estimate_us, double budget_us);

}  // namespace weft
