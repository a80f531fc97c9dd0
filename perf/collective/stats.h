// Statistics over samples, and nccl-tests' idea of bandwidth.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "coll/types.h"

namespace weft {

// The p-th percentile, 0 < p <= 100, by nearest rank: always one of the samples. `sorted` is
// ascending and not empty.
double percentile(std::span<const double> sorted, double p);
double median(std::vector<double> samples);  // of an even count: the lower of the middle two

struct Summary {
  double min = 0, p50 = 0, p99 = 0, max = 0;
};
Summary summarize(std::vector<double> samples);  // not empty

// times[r][i] is iteration i on rank r: the time of an operation is that of its slowest rank.
// Every rank has the same number of samples.
std::vector<double> slowest_rank(std::span<const std::vector<double>> times);

// algbw = bytes / time; busbw = algbw * factor. GB/s = 10^9 B/s. `bytes` is the whole buffer.
double busbw_factor(Collective collective, int nranks);
double algbw_gbps(std::uint64_t bytes, double time_us);

// How many iterations fill `budget_us` when one takes `estimate_us`; between 5 and 2000.
int iterations_for(double estimate_us, double budget_us);

}  // namespace weft
