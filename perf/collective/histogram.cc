// Counts times in buckets and computes percentiles.
#include "perf/collective/histogram.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstddef>

namespace weft {
namespace {

// Values below 2^kBits have a bucket each; above, each power of two has 2^(kBits - 1) buckets.
constexpr int kBits = 9;
constexpr std::int64_t kExact = std::int64_t{1} << kBits;
constexpr std::int64_t kHalf = kExact / 2;
constexpr int kLargestPower = 47;  // 39 hours in ns; the last bucket has all larger values
constexpr std::size_t kBuckets = static_cast<std::size_t>(kExact + (kLargestPower - kBits) * kHalf);

std::size_t bucket_of(std::int64_t value) {
  if (value < kExact) return static_cast<std::size_t>(value);
  const int shift = std::bit_width(static_cast<std::uint64_t>(value)) - kBits;
  const auto bucket = static_cast<std::size_t>(shift * kHalf + (value >> shift));
  return std::min(bucket, kBuckets - 1);
}

std::int64_t end_of(std::size_t bucket) {  // the largest value in the bucket
  const auto b = static_cast<std::int64_t>(bucket);
  if (b < kExact) return b;
  const std::int64_t shift = b / kHalf - 1;
  return ((b - shift * kHalf + 1) << shift) - 1;
}

}  // namespace

Histogram::Histogram() : buckets_(kBuckets) {}

void Histogram::add(std::int64_t ns) noexcept {
  ns = std::max<std::int64_t>(ns, 0);
  ++buckets_[bucket_of(ns)];
  ++count_;
  min_ = std::min(min_, ns);
  max_ = std::max(max_, ns);
  const double difference = static_cast<double>(ns) - mean_;
  mean_ += difference / static_cast<double>(count_);
  squares_ += difference * (static_cast<double>(ns) - mean_);
}

double Histogram::mean() const { return mean_; }

double Histogram::deviation() const {
  return count_ == 0 ? 0 : std::sqrt(squares_ / static_cast<double>(count_));
}

std::int64_t Histogram::percentile(double p) const {
  if (count_ == 0) return 0;
  // Use integers: in floating point, 99.9 / 100 * 1000 exceeds 999.
  const auto thousandths = static_cast<std::uint64_t>(std::llround(p * 1000));
  const std::uint64_t wanted = (thousandths * count_ + 99999) / 100000;
  const std::uint64_t rank = std::clamp<std::uint64_t>(wanted, 1, count_);
  std::uint64_t seen = 0;
  for (std::size_t b = 0; b < kBuckets; ++b) {
    seen += buckets_[b];
    if (seen >= rank) return std::min(end_of(b), max_);
  }
  return max_;
}

}  // namespace weft
