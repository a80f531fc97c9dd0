// A sum of squares whose bits do not depend on the order of its terms, nor on which rank has which:
// each is rounded to a fixed point that follows from the largest of all, and integers are added.
#pragma once

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>

namespace weft::train {

struct ExactSum {
  // Of 2^31 and of 1; for up to 2^31 terms. Both may be added over ranks.
  std::int64_t high = 0, low = 0;

  // largest: of all |x| of all ranks; finite, above zero. Squares are then below 2^62.
  static int shift(double largest) {
    int exponent;
    std::frexp(largest, &exponent);
    return 62 - 2 * exponent;
  }
  template <class T>
  void add_squares(const T* x, std::size_t count, int shift) {
    for (std::size_t i = 0; i < count; ++i) {
      // Shifted before it is squared: squares of doubles may be infinite.
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

// Of |x|; infinity where one is not finite.
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
