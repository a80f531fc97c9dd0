// Runs the validations of a matrix one after the other, and keeps their results.
#pragma once

#include <string>
#include <vector>

#include "perf/lab/matrix/fault_lab.h"
#include "perf/lab/matrix/results.h"

namespace weft {

struct MatrixPlan {
  MatrixHead head;
  std::string out;       // folder of runs.jsonl, and of reports of wrong runs
  int limit_s = 180;     // for one validation
  int stop_after_s = 0;  // no run begins later; 0: no limit
};

std::string results_file(const std::string& folder);

// Throws Error naming the path when writing fails.
void write_text(const std::string& path, const std::string& text);

// Runs the trials that are missing from the folder's results, and appends to these. Prints a line
// for each. Returns false if it stopped early. Needs a SignalGuard. Throws Error if a command of
// the lab fails, or if the results in the folder belong to a different matrix.
bool run_trials(const std::vector<Trial>& trials, const FaultLab& lab, const MatrixPlan& plan);

}  // namespace weft
