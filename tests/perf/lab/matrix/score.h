// What the results of a matrix amount to, as text, JSON and a page. Pure.
#pragma once

#include <map>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "perf/lab/matrix/results.h"

namespace weft {

struct ScoreRow {
  std::string name;  // "rate-transmit", "clean", "pair"; "busy/..." with a busy core
  int runs = 0;
  int kind = 0, place = 0, verdict = 0;  // runs in which that was right; of pairs: both
  int false_alarms = 0;                  // runs with one
  int without_report = 0;
  std::vector<double> seconds;  // of each run
  double median_s() const;
  double longest_s() const;
};

struct Score {
  std::vector<ScoreRow> rows;  // in the order in which the results have them first
  std::vector<ScoreRow>
      kinds;        // the same for runs with one fault by its kind, where rows have its places
  ScoreRow faults;  // all runs with one fault, together
  // How often a fault of the first kind, alone, was told by the second; "nothing": no claim, "-":
  // no report. Of a run with several claims the first one counts: a report has the heaviest first.
  std::map<std::string, std::map<std::string, int>> confusion;
};

Score score(const std::vector<TrialResult>& results);

std::string to_text(const Score& score);
nlohmann::ordered_json to_json(const Score& score);
// A page with a section for each lab: figures, confusion matrix, and the runs that went wrong.
std::string to_markdown(const std::vector<MatrixResults>& labs);

}  // namespace weft
