// The results of a matrix as a file of JSON lines: a head that identifies the matrix, and a line
// for each completed run. An interrupted matrix is continued at the end of the file.
#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "perf/lab/matrix/fault.h"
#include "perf/lab/matrix/match.h"

namespace weft {

struct TrialResult {
  Trial trial;
  Seen seen;
  Match match;          // recomputed when results are read
  int exit_code = 0;    // of the validation
  double seconds = 0;   // from the start of the validation to its end
  std::string problem;  // reason for a missing report: "no report (exit code 4)"
};

// Identifies a matrix: results with different heads are not combined.
struct MatrixHead {
  MatrixLab lab;
  std::uint64_t seed = 1;
  std::string rate;      // of the lab: "400mbit"
  std::string validate;  // additional options of the validation: "--budget 20s"
  bool operator==(const MatrixHead&) const = default;
};

struct MatrixResults {
  MatrixHead head;
  std::vector<TrialResult> runs;
};

nlohmann::ordered_json to_json(const MatrixHead& head);
nlohmann::ordered_json to_json(const TrialResult& result);

// Reads the file; returns no runs if it does not exist. Ignores a truncated last line. Throws
// Error naming the file and the malformed line.
MatrixResults read_results(const std::string& path, const MatrixHead& head_of_a_new_file);

}  // namespace weft
