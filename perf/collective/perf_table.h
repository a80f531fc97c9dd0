// The rows of `weft perf` as text. Does not measure.
#pragma once

#include <cstdint>
#include <span>
#include <string>

#include "perf/cli/table.h"
#include "perf/collective/perf_report.h"

namespace weft {

// What is measured, from which the widths of the columns follow.
struct PerfExtent {
  std::uint64_t largest = 0;  // bytes
  std::span<const DType> types;
  std::span<const RedOp> ops;
};

// Rows of at most 100 columns. Both halves: nccl-tests' columns. One half: these of the half, the
// algorithm and of_bound. With percentiles: a line for each half, with min, p50 and p99.
class PerfTable {
 public:
  PerfTable(const PerfReport& report, const PerfExtent& extent, bool percentiles);
  std::string header() const;
  std::string row(const PerfRow& row) const;
  bool shows_algorithms() const { return table_.has("algorithm"); }

 private:
  bool both() const { return !shows_algorithms(); }
  const PerfReport& report_;
  bool percentiles_;
  Table table_;
};

// The '#' lines about algorithms and of_bound of a table without these columns.
std::string algorithms_in_words(const PerfReport& report);

}  // namespace weft
