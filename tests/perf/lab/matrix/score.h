// Summarizes the results of a matrix as text, JSON and a page. Pure.
#pragma once

#include <map>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "perf/lab/matrix/results.h"

namespace weft {

struct ScoreRow {
  std::string name;  // "rate-transmit", "clean", "pair"; prefix "busy/" with a busy core
  int runs = 0;
  int kind = 0, place = 0, verdict = 0;  // runs in which it was correct; for pairs: both
  int false_alarms = 0;                  // runs with one
  int without_report = 0;
  std::vector<double> seconds;  // by run
  double median_s() const;
  double longest_s() const;
};

struct Score {
  std::vector<ScoreRow> rows;   // in order of first appearance
  std::vector<ScoreRow> kinds;  // runs with one fault, by its kind, if it has rows by place
  ScoreRow faults;              // all runs with one fault, together
  // How often a single fault of the first kind was reported as the second; "nothing": no claim,
  // "-": no report. Only the first claim of a run counts: reports list the heaviest one first.
  std::map<std::string, std::map<std::string, int>> confusion;
};

Score score(const std::vector<TrialResult>& results);

std::string to_text(const Score& score);
nlohmann::ordered_json to_json(const Score& score);
// A page with a section for each lab: figures, confusion matrix, and the wrong runs.
std::string to_markdown(const std::vector<MatrixResults>& labs);

}  // namespace weft
