// Formats the score of a matrix: a table for a terminal, and the page for the docs.
#include <fmt/core.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <set>

#include "perf/lab/matrix/score.h"

namespace weft {
namespace {

std::string share(int part, int whole) {
  return whole == 0 ? "-" : fmt::format("{} of {}", part, whole);
}

bool has_fault(const ScoreRow& row) { return row.name != "clean" && row.name != "busy/clean"; }

std::string in_words(const Trial& trial) {
  std::vector<std::string> words;
  for (const LabFault& fault : trial.faults) words.push_back(in_words(fault));
  return words.empty() ? "no fault" : fmt::format("{}", fmt::join(words, "; "));
}

std::string claims_in_words(const TrialResult& result) {
  if (!result.problem.empty()) return result.problem;
  std::vector<std::string> words;
  for (const Claim& claim : result.seen.claims)
    if (!claim.explained && !claim.unknown) words.push_back(in_words(claim));
  return words.empty() ? "nothing" : fmt::format("{}", fmt::join(words, "; "));
}

bool went_wrong(const TrialResult& result) {
  const Match& match = result.match;
  return !result.problem.empty() || !match.verdict || !match.false_alarms.empty() ||
         !std::all_of(match.faults.begin(), match.faults.end(),
                      [](const Named& named) { return named.kind && named.place; });
}

// Returns all rows, then those of kinds with several places, then the total, named `last`.
std::vector<ScoreRow> rows_to_show(const Score& score, const std::string& last) {
  std::vector<ScoreRow> rows = score.rows;
  for (const ScoreRow& kind : score.kinds) rows.emplace_back(kind).name = "all of " + kind.name;
  rows.emplace_back(score.faults).name = last;
  return rows;
}

std::string figures_of(const Score& score) {
  std::string text =
      "| fault | runs | kind right | place right | verdict right | runs with a false alarm | "
      "median | longest |\n|---|---|---|---|---|---|---|---|\n";
  for (const ScoreRow& row : rows_to_show(score, "**all with one fault**")) {
    const bool faulty = has_fault(row);
    text += fmt::format("| {} | {} | {} | {} | {} | {} | {:.0f} s | {:.0f} s |\n", row.name,
                        row.runs, faulty ? share(row.kind, row.runs) : "",
                        faulty ? share(row.place, row.runs) : "", share(row.verdict, row.runs),
                        row.false_alarms, row.median_s(), row.longest_s());
  }
  return text;
}

std::string confusion_of(const Score& score) {
  std::set<std::string> columns;
  for (const auto& [kind, told] : score.confusion)
    for (const auto& [id, count] : told) columns.insert(id);
  std::string text = fmt::format("| injected | {} |\n|---|", fmt::join(columns, " | "));
  for (std::size_t i = 0; i < columns.size(); ++i) text += "---|";
  text += "\n";
  for (const auto& [kind, told] : score.confusion) {
    text += fmt::format("| {} |", kind);
    for (const std::string& id : columns) {
      const auto count = told.find(id);
      text += count == told.end() ? " |" : fmt::format(" {} |", count->second);
    }
    text += "\n";
  }
  return text;
}

std::string misses_of(const MatrixResults& lab) {
  std::string text = "| run | injected | verdict | what the report says |\n|---|---|---|---|\n";
  bool any = false;
  for (const TrialResult& result : lab.runs) {
    if (!went_wrong(result)) continue;
    any = true;
    text += fmt::format("| {} | {} | {} | {} |\n", result.trial.id, in_words(result.trial),
                        result.seen.verdict, claims_in_words(result));
  }
  return any ? text : "None.\n";
}

}  // namespace

std::string to_text(const Score& score) {
  std::string text =
      fmt::format("{:<24}{:>6}{:>8}{:>8}{:>9}{:>8}{:>11}{:>10}{:>10}\n", "fault", "runs", "kind",
                  "place", "verdict", "false", "no report", "median s", "longest s");
  for (const ScoreRow& row : rows_to_show(score, "all with one fault")) {
    const auto right = [&](int count) {
      return has_fault(row) ? std::to_string(count) : std::string();
    };
    text += fmt::format("{:<24}{:>6}{:>8}{:>8}{:>9}{:>8}{:>11}{:>10.1f}{:>10.1f}\n", row.name,
                        row.runs, right(row.kind), right(row.place), row.verdict, row.false_alarms,
                        row.without_report, row.median_s(), row.longest_s());
  }
  return text;
}

std::string to_markdown(const std::vector<MatrixResults>& labs) {
  std::string page =
      "# The fault matrix\n\n"
      "`weft_matrix` breaks a lab on purpose, runs `weft validate` in it, and compares what "
      "the "
      "report names\nwith what was broken: hosts, rails, directions and strengths are drawn from a "
      "seed. This page is written by\nthe command. *Kind right*: a finding at the fault's place "
      "names its kind. *Place right*: such findings cover host,\nrail and direction, no more and "
      "no "
      "less; either direction of a port that comes and goes in both, and of one bad path of four "
      "the "
      "port or\nits rail's switch. A report that is UNKNOWN has named nothing. *False alarm*: a "
      "finding away from every fault,\nor UNKNOWN where there was none. Times are from the start "
      "of the command to its end. Of pairs, both faults must be\nright. What the faults are: "
      "[the labs](../lab.md).\n";
  for (const MatrixResults& lab : labs) {
    const Score counted = score(lab.runs);
    const MatrixHead& head = lab.head;
    page += fmt::format(
        "\n## {}: {} hosts x {} rails\n\nRates {}, seed {}, `weft validate{}{}`.\n\n{}\n"
        "### Told as\n\nRows: what was injected, alone. Columns: the first finding of the "
        "report.\n\n{}\n### Runs that went wrong\n\n{}",
        head.lab.name, head.lab.hosts.size(), head.lab.rails,
        head.rate.empty() ? "as they are" : head.rate, head.seed, head.validate.empty() ? "" : " ",
        head.validate, figures_of(counted), confusion_of(counted), misses_of(lab));
  }
  return page;
}

}  // namespace weft
