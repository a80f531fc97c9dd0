// The rows of `weft perf` as text. Does not measure.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "perf/cli/table.h"
#include "perf/sweep/perf_report.h"

namespace weft {

// What is measured, from which the widths of the columns follow.
struct PerfExtent {
  std::uint64_t largest = 0;  // bytes
  std::span<const DType> types;
  std::span<const RedOp> ops;
};

// A row has one line, as nccl-tests has it, or one for each half: with min, p50 and p99, or with
// nccl-tests' columns of --per-iteration.
enum class PerfLines { kRows, kPercentiles, kIterations };

// Rows of at most 100 columns, time stamps not counted. Both halves: nccl-tests' columns. One half:
// these of the half, the algorithm and of_bound.
class PerfTable {
 public:
  PerfTable(const PerfReport& report, const PerfExtent& extent, PerfLines lines);
  std::string header() const;
  std::string row(const PerfRow& row) const;
  bool shows_algorithms() const { return table_.has("algorithm"); }

 private:
  bool both() const { return lines_ == PerfLines::kRows && !shows_algorithms(); }
  std::string lines_of_halves(const PerfRow& row) const;
  std::vector<std::string> rates(const PerfRow& row, const PerfHalf& half) const;
  const PerfReport& report_;
  PerfLines lines_;
  Table table_;
};

// The '#' lines about algorithms and of_bound of a table without these columns.
std::string algorithms_in_words(const PerfReport& report);

}  // namespace weft
