// Runs the validations of a matrix one after the other, and keeps their results.
#pragma once

#include <string>
#include <vector>

#include "perf/lab/matrix/fault_lab.h"
#include "perf/lab/matrix/results.h"

namespace weft {

struct MatrixPlan {
  MatrixHead head;
  std::string out;       // folder of runs.jsonl, and of reports of runs that went wrong
  int limit_s = 180;     // for one validation
  int stop_after_s = 0;  // begin no run after so long; 0: no end
};

std::string results_file(const std::string& folder);

// Throws Error naming the path when writing fails.
void write_text(const std::string& path, const std::string& text);

// Runs the trials that the folder's results do not have, and appends to these. Prints a line for
// each. Returns false when it stopped before the end. Needs a SignalGuard. Throws Error when the
// lab does not obey, or when the results in the folder are those of another matrix.
bool run_trials(const std::vector<Trial>& trials, const FaultLab& lab, const MatrixPlan& plan);

}  // namespace weft
