// The rows of `weft perf` as text. Does not measure.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "perf/cli/table.h"
#include "perf/sweep/perf_report.h"

namespace weft {

// The extent of the measurements, which determines the column widths.
struct PerfExtent {
  std::uint64_t largest = 0;  // largest size in bytes
  std::span<const DType> types;
  std::span<const RedOp> ops;
};

// A row has one line, as in nccl-tests, or one per half: with min, p50 and p99, or with the
// nccl-tests columns of --per-iteration.
enum class PerfLines { kRows, kPercentiles, kIterations };

// Formats rows of at most 100 columns, without time stamps. With both halves, they have nccl-tests'
// columns; with one half, the columns of that half, the algorithm and of_bound.
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

// Returns the '#' lines that give algorithms and of_bound below a table without these columns.
std::string algorithms_in_words(const PerfReport& report);

}  // namespace weft
