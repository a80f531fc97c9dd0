// Test data whose reductions are exact in every type and order, so that results can be compared bit
// by bit. The data depend on rank and position, to detect misplaced pieces.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "coll/types.h"

namespace weft {

// A byte that no payload repeats. Memory is filled with it to detect unwritten elements.
inline constexpr unsigned char kPoison = 0xA5;

struct Mismatch {
  std::uint64_t wrong = 0;  // elements
  std::string first;        // "element 17 is 3, expected 5"; empty if no element is wrong
};

// The test data for one type, operator and number of ranks. Element i of a rank is a small integer
// that depends on the rank and on i modulo kPeriod, a prime, so that powers of two do not alias.
class Payload {
 public:
  static constexpr std::size_t kPeriod = 65537;
  static constexpr double kFactor = 2;  // factor of premul_sum

  Payload(DType type, RedOp op, int nranks);

  double value(int rank, std::uint64_t index) const;
  double reduced(std::uint64_t index) const;  // element `index` of the reduction over all ranks

  // Lets compare() and compare_reduced() accept errors up to this fraction of the largest magnitude
  // on any rank.
  void allow(double share) { tolerance_ = share * largest(); }

  // Sets data[i] to element first + i of `rank`.
  void fill(void* data, std::size_t count, int rank, std::uint64_t first = 0) const;
  // Compares data[i] bit for bit with element first + i of `rank`, or of the reduction.
  Mismatch compare(const void* data, std::size_t count, int rank, std::uint64_t first = 0) const;
  Mismatch compare_reduced(const void* data, std::size_t count, std::uint64_t first = 0) const;

 private:
  // Returns elements first, first + 1, ... of a rank (or kReduced), at most one period.
  static constexpr int kReduced = -1;
  std::vector<unsigned char> window(int rank, std::size_t count, std::uint64_t first) const;
  Mismatch compare_with(int rank, const void* data, std::size_t count, std::uint64_t first) const;

  double combine(double x, double y) const;
  double largest() const { return std::max(range_ * unit_, std::abs(neutral_)); }

  DType type_;
  RedOp op_;
  int nranks_;
  int range_ = 0;         // values are in [-range_, range_] * unit_
  int contributors_ = 0;  // ranks whose element i is not 0
  double unit_ = 1;
  double tolerance_ = 0;
  double neutral_ = 0;  // element of a rank that does not contribute
};

}  // namespace weft
