// Test data whose reductions are exact in every type and order, so that results can be compared
// bit by bit; it depends on rank and position, so that a misplaced piece shows.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "coll/types.h"

namespace weft {

// Fills memory with bytes that no payload contains, so that what was never written shows.
inline constexpr unsigned char kPoison = 0xA5;

struct Mismatch {
  std::uint64_t wrong = 0;  // elements
  std::string first;        // "element 17 is 3, expected 5", empty when nothing is wrong
};

// The data of one (type, operator, number of ranks). Element i of a rank is a small integer that
// depends on the rank and on i modulo kPeriod, a prime, so that no power of two maps onto it.
class Payload {
 public:
  static constexpr std::size_t kPeriod = 65537;
  static constexpr double kFactor = 2;  // of premul_sum

  Payload(DType type, RedOp op, int nranks);

  double value(int rank, std::uint64_t index) const;
  double reduced(std::uint64_t index) const;  // over all ranks

  // data[i] = element first + i of `rank`.
  void fill(void* data, std::size_t count, int rank, std::uint64_t first = 0) const;
  // Compares with the elements first ... of `rank`, or of the reduction. Bit by bit.
  Mismatch compare(const void* data, std::size_t count, int rank, std::uint64_t first = 0) const;
  Mismatch compare_reduced(const void* data, std::size_t count, std::uint64_t first = 0) const;

 private:
  // Elements first, first + 1, ... of a rank (kReduced: of the reduction), at most one period.
  static constexpr int kReduced = -1;
  std::vector<unsigned char> window(int rank, std::size_t count, std::uint64_t first) const;
  Mismatch compare_with(int rank, const void* data, std::size_t count, std::uint64_t first) const;

  double combine(double x, double y) const;

  DType type_;
  RedOp op_;
  int nranks_;
  int range_ = 0;         // values are in [-range_, range_] * unit_
  int contributors_ = 0;  // ranks whose element i is not 0
  double unit_ = 1;
  double neutral_ = 0;  // of those that do not contribute
};

}  // namespace weft
