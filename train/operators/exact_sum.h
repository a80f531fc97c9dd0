// ExactSum: a sum of squares with the same bits for any order of terms and any distribution over
// ranks. Rounds each square to a fixed point, which depends on the largest number of all ranks, and
// adds integers.
#pragma once

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>

namespace weft::train {

struct ExactSum {
  // The sum is high * 2^31 + low, for up to 2^31 terms. An all-reduce may add both.
  std::int64_t high = 0, low = 0;

  // Returns the shift that keeps squares below 2^62. largest: |x| over all ranks; finite, > 0.
  static int shift(double largest) {
    int exponent;
    std::frexp(largest, &exponent);
    return 62 - 2 * exponent;
  }
  template <class T>
  void add_squares(const T* x, std::size_t count, int shift) {
    for (std::size_t i = 0; i < count; ++i) {
      // Shifts before squaring, because squares of doubles may overflow.
      const double below = std::ldexp(static_cast<double>(x[i]), shift / 2);
      const auto fixed = static_cast<std::int64_t>(below * below);
      high += fixed >> 31;
      low += fixed & 0x7fffffff;
    }
  }
  double value(int shift) const {
    return std::ldexp(static_cast<double>(high) * 0x1p31 + static_cast<double>(low), -shift);
  }
};

// Returns the largest |x|; infinity if an element is inf or NaN.
template <class T>
double largest_of(const T* x, std::size_t count) {
  double most = 0;
  for (std::size_t i = 0; i < count; ++i) {
    const double a = std::abs(static_cast<double>(x[i]));
    if (!(a <= std::numeric_limits<double>::max())) return std::numeric_limits<double>::infinity();
    if (a > most) most = a;
  }
  return most;
}

}  // namespace weft::train
