// The sum of squares of gradients in deterministic mode, where squares overflow the type.
#include "train/operators/exact_sum.h"

#include <gtest/gtest.h>

#include <cmath>
#include <vector>

namespace weft::train {
namespace {

double exact_sum_of(const std::vector<double>& x) {
  const int shift = ExactSum::shift(largest_of(x.data(), x.size()));
  ExactSum sum;
  sum.add_squares(x.data(), x.size(), shift);
  EXPECT_GE(sum.high, 0);
  return sum.value(shift);
}

TEST(ExactSum, OfNumbersOfAnySize) {
  EXPECT_EQ(exact_sum_of({3, -4}), 25);
  EXPECT_EQ(exact_sum_of({0x3p400, -0x4p400}), 0x19p800);
  EXPECT_EQ(exact_sum_of({0x3p-400, -0x4p-400}), 0x19p-800);
  EXPECT_EQ(exact_sum_of({1e200, -1e300}), HUGE_VAL) << "as the sum of doubles is";
}

}  // namespace
}  // namespace weft::train
