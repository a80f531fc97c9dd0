// Counts the results of a matrix.
#include "perf/lab/matrix/score.h"

#include <algorithm>
#include <nlohmann/json.hpp>

namespace weft {
namespace {

void add(ScoreRow& row, const TrialResult& result) {
  const auto all = [&](auto right) {
    const auto& faults = result.match.faults;
    return std::all_of(faults.begin(), faults.end(), right) ? 1 : 0;
  };
  ++row.runs;
  row.kind += all([](const Named& named) { return named.kind; });
  row.place += all([](const Named& named) { return named.kind && named.place; });
  row.verdict += result.match.verdict ? 1 : 0;
  row.false_alarms += result.match.false_alarms.empty() ? 0 : 1;
  row.without_report += result.problem.empty() ? 0 : 1;
  row.seconds.push_back(result.seconds);
}

std::string told_as(const TrialResult& result) {
  if (!result.problem.empty()) return "-";
  for (const Claim& claim : result.seen.claims)
    if (!claim.explained && !claim.unknown) return claim.id;
  return "nothing";
}

// Returns the row of this name, or adds it.
ScoreRow& row_of(std::vector<ScoreRow>& rows, const std::string& name) {
  const auto row = std::find_if(rows.begin(), rows.end(),
                                [&](const ScoreRow& other) { return other.name == name; });
  if (row != rows.end()) return *row;
  rows.emplace_back().name = name;
  return rows.back();
}

nlohmann::ordered_json row_json(const ScoreRow& row) {
  return {{"name", row.name},
          {"runs", row.runs},
          {"kind_right", row.kind},
          {"place_right", row.place},
          {"verdict_right", row.verdict},
          {"runs_with_false_alarms", row.false_alarms},
          {"without_report", row.without_report},
          {"median_s", row.median_s()},
          {"longest_s", row.longest_s()}};
}

}  // namespace

double ScoreRow::median_s() const {
  if (seconds.empty()) return 0;
  std::vector<double> sorted = seconds;
  const auto middle = sorted.begin() + static_cast<std::ptrdiff_t>(sorted.size() / 2);
  std::nth_element(sorted.begin(), middle, sorted.end());
  return *middle;
}

double ScoreRow::longest_s() const {
  return seconds.empty() ? 0 : *std::max_element(seconds.begin(), seconds.end());
}

Score score(const std::vector<TrialResult>& results) {
  Score score;
  score.faults.name = "all";
  for (const TrialResult& result : results) {
    const std::string& id = result.trial.id;
    const std::string name = id.substr(0, id.rfind('/'));
    add(row_of(score.rows, name), result);
    const auto faults = result.trial.faults.size();
    if (faults == 1) add(score.faults, result);
    if (faults == 1 && !name.ends_with(result.trial.faults[0].kind))
      add(row_of(score.kinds, result.trial.faults[0].kind), result);
    if (faults < 2)
      ++score.confusion[faults == 0 ? "clean" : result.trial.faults[0].kind][told_as(result)];
  }
  return score;
}

nlohmann::ordered_json to_json(const Score& score) {
  auto rows = nlohmann::ordered_json::array(), kinds = rows;
  for (const ScoreRow& row : score.rows) rows.push_back(row_json(row));
  for (const ScoreRow& row : score.kinds) kinds.push_back(row_json(row));
  return {{"schema", "weft.matrix_score/1"},
          {"rows", rows},
          {"kinds", kinds},
          {"one_fault", row_json(score.faults)},
          {"confusion", score.confusion}};
}

}  // namespace weft
