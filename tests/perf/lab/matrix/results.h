// The results of a matrix as a file of JSON lines: a head that says which matrix this is, and a
// line for each run that is over. A matrix that was cut off goes on where the file ends.
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
  Match match;          // made anew whenever results are read
  int exit_code = 0;    // of the validation
  double seconds = 0;   // from the start of the validation to its end
  std::string problem;  // why there is no report: "no report (exit code 4)"
};

// What must be equal for results to belong together.
struct MatrixHead {
  MatrixLab lab;
  std::uint64_t seed = 1;
  std::string rate;      // of the lab: "400mbit"
  std::string validate;  // further words of the validation: "--budget 20s"
  bool operator==(const MatrixHead&) const = default;
};

struct MatrixResults {
  MatrixHead head;
  std::vector<TrialResult> runs;
};

nlohmann::ordered_json to_json(const MatrixHead& head);
nlohmann::ordered_json to_json(const TrialResult& result);

// Reads the file; no runs where there is no file. A last line that was cut off is left out. Throws
// Error naming the file and the line that is wrong.
MatrixResults read_results(const std::string& path, const MatrixHead& head_of_a_new_file);

}  // namespace weft
