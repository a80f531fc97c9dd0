// Counts the times of single operations in buckets that are at most 1/256 of their value wide: the
// memory does not grow with the count, and percentiles of any depth can be computed afterwards.
#pragma once

#include <cstdint>
#include <vector>

namespace weft {

class Histogram {
 public:
  Histogram();
  void add(std::int64_t ns) noexcept;  // less than 0 counts as 0

  std::uint64_t count() const { return count_; }
  // The exact extremes of all added times; 0 when nothing was added.
  std::int64_t min() const { return count_ ? min_ : 0; }
  std::int64_t max() const { return max_; }
  double mean() const;
  double deviation() const;  // of the population: sqrt(mean of squared differences to the mean)
  // Returns the smallest value that p percent of the times do not exceed, rounded up to the end of
  // its bucket, but never beyond max(). 0 < p <= 100, to a thousandth.
  std::int64_t percentile(double p) const;

 private:
  std::vector<std::uint64_t> buckets_;
  std::uint64_t count_ = 0;
  std::int64_t min_ = INT64_MAX, max_ = 0;
  double mean_ = 0, squares_ = 0;  // by Welford: no cancellation, however many times are added
};

}  // namespace weft
