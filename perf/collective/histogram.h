// Times of single operations, counted in buckets whose width is 1/256 of their value or less: the
// memory does not grow with the count, and percentiles of any depth can be asked for afterwards.
#pragma once

#include <cstdint>
#include <vector>

namespace weft {

class Histogram {
 public:
  Histogram();
  void add(std::int64_t ns) noexcept;  // less than 0 counts as 0

  std::uint64_t count() const { return count_; }
  // Exact, of all that was added; 0 where nothing was.
  std::int64_t min() const { return count_ ? min_ : 0; }
  std::int64_t max() const { return max_; }
  double mean() const;
  double deviation() const;  // of the whole: sqrt(mean of squares of differences to the mean)
  // The smallest value that p percent of all do not exceed, rounded up to the end of its bucket,
  // but never beyond max(). 0 < p <= 100, to a thousandth.
  std::int64_t percentile(double p) const;

 private:
  std::vector<std::uint64_t> buckets_;
  std::uint64_t count_ = 0;
  std::int64_t min_ = INT64_MAX, max_ = 0;
  double mean_ = 0, squares_ = 0;  // Welford's: no cancellation however long it runs
};

}  // namespace weft
