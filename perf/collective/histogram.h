// Counts the times of single operations in buckets at most 1/256 of their value wide: memory use
// does not depend on the count, and any percentile can be computed afterwards.
#pragma once

#include <cstdint>
#include <vector>

namespace weft {

class Histogram {
 public:
  Histogram();
  void add(std::int64_t ns) noexcept;  // a negative value is added as 0

  std::uint64_t count() const { return count_; }
  // The exact extremes of all added times; 0 if no time was added.
  std::int64_t min() const { return count_ ? min_ : 0; }
  std::int64_t max() const { return max_; }
  double mean() const;
  double deviation() const;  // the population standard deviation
  // Returns the smallest value that p percent of the times do not exceed, rounded up to the end of
  // its bucket, but at most max(). 0 < p <= 100, with a resolution of 0.001.
  std::int64_t percentile(double p) const;

 private:
  std::vector<std::uint64_t> buckets_;
  std::uint64_t count_ = 0;
  std::int64_t min_ = INT64_MAX, max_ = 0;
  double mean_ = 0, squares_ = 0;  // mean and sum of squared deviations, by Welford's algorithm
};

}  // namespace weft
