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
double median(std::vector<double> samples);  // of an even count: the lower of the middle two

struct Summary {
  double min = 0, p50 = 0, p99 = 0, max = 0;
};
Summary summarize(std::vector<double> samples);  // not empty

// Returns each operation's time on its slowest rank. times[r][i] is iteration i on rank r; every
// rank has the same number of samples.
std::vector<double> slowest_rank(std::span<const std::vector<double>> times);

// busbw = algbw * factor.
double busbw_factor(Collective collective, int nranks);
// algbw = bytes / time, in GB/s (10^9 B/s). `bytes` is the whole buffer.
double algbw_gbps(std::uint64_t bytes, double time_us);

// Returns how many iterations of `estimate_us` fill `budget_us`, between 5 and 2000.
int iterations_for(double estimate_us, double budget_us);

}  // namespace weft
