// The loop of a matrix: heal the lab, inject faults, validate, compare, record.
#include "perf/lab/matrix/matrix_run.h"

#include <fmt/core.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <set>
#include <sstream>

#include "perf/lab/lab_ranks.h"
#include "topo/base/status.h"

namespace weft {

std::string results_file(const std::string& folder) { return folder + "/runs.jsonl"; }

void write_text(const std::string& path, const std::string& text) {
  std::ofstream file(path);
  file << text;
  file.flush();
  if (!file) throw Error(fmt::format("{}: cannot be written", path));
}

namespace {

// The exit code of a lab's script for faults that this machine does not support.
constexpr int kScriptMissing = 3;

// Appends to the results. Refuses a file of a different matrix.
class ResultsFile {
 public:
  ResultsFile(const std::string& folder, const MatrixHead& head) : path_(results_file(folder)) {
    const MatrixResults before = read_results(path_, head);
    if (before.head != head) {
      throw Error(fmt::format("{} has other runs, {}: give the same flags, or another --out", path_,
                              to_json(before.head).dump()));
    }
    std::string text = to_json(head).dump() + "\n";
    for (const TrialResult& run : before.runs) {
      done_.insert(run.trial.id);
      text += to_json(run).dump() + "\n";
    }
    write_text(path_, text);  // drops a truncated line
  }
  bool has(const std::string& id) const { return done_.contains(id); }
  void add(const TrialResult& result) {
    std::ofstream file(path_, std::ios::app);
    file << to_json(result).dump() << '\n';
    file.flush();
    if (!file) throw Error(fmt::format("{}: cannot be written", path_));
  }

 private:
  std::string path_;
  std::set<std::string> done_;
};

// Injects all faults but those in mid-run. Returns false if this machine does not support one.
bool inject(const Trial& trial, const FaultLab& lab) {
  for (const LabFault& fault : trial.faults) {
    const Command command = lab.inject(fault);
    if (command.empty() || find_fault_row(fault.kind)->in_mid_run) continue;
    const int code = run_helper(command);
    if (code == kScriptMissing) return false;
    if (code != 0) throw Error(fmt::format("{} ended with code {}", fmt::join(command, " "), code));
  }
  return true;
}

TrialResult validate_once(const Trial& trial, const FaultLab& lab, const MatrixPlan& plan) {
  std::string name = trial.id;
  std::replace(name.begin(), name.end(), '/', '_');
  const std::string json = fmt::format("{}/{}.json", plan.out, name);
  const std::string log = fmt::format("{}/{}.log", plan.out, name);
  std::filesystem::remove(json);
  Command weft = {"validate", "--json", json};
  for (std::stringstream words(plan.head.validate); !words.eof();)
    if (std::string word; words >> word) weft.push_back(word);

  TrialResult result;
  result.trial = trial;
  const auto start = std::chrono::steady_clock::now();
  result.exit_code =
      run_ranks({{{"sh", "-c", shell_line(trial, lab, weft, log, plan.limit_s)}, {}, -1}},
                std::chrono::seconds(60));
  const std::chrono::duration<double> took = std::chrono::steady_clock::now() - start;
  result.seconds = took.count();
  result.seen.verdict = "none";
  try {
    std::ifstream file(json);
    if (!file) throw Error("no report");
    result.seen = seen_from_json(nlohmann::ordered_json::parse(file));
  } catch (const std::exception& error) {
    result.problem = fmt::format("{} (exit code {})", error.what(), result.exit_code);
  }
  result.match = match(trial, result.seen, lab.shape());
  return result;
}

// Prints one line, and removes the files of a run without errors.
void tell(const TrialResult& result, const MatrixPlan& plan) {
  bool right = result.problem.empty() && result.match.verdict && result.match.false_alarms.empty();
  std::string faults, named;
  for (std::size_t i = 0; i < result.trial.faults.size(); ++i) {
    const Named& one = result.match.faults[i];
    faults += (faults.empty() ? "" : "; ") + in_words(result.trial.faults[i]);
    named += one.kind && one.place ? " named" : one.kind ? " misplaced" : " missed";
    right = right && one.kind && one.place;
  }
  for (const std::string& alarm : result.match.false_alarms) named += ", false alarm: " + alarm;
  if (!result.problem.empty()) named += ", " + result.problem;
  fmt::print("{:<22} {:<44} {:<9} {:5.1f} s {}\n", result.trial.id,
             faults.empty() ? "no fault" : faults, result.seen.verdict, result.seconds, named);
  std::fflush(stdout);
  if (!right) return;
  std::string name = result.trial.id;
  std::replace(name.begin(), name.end(), '/', '_');
  for (const char* end : {".json", ".log"})
    std::filesystem::remove(fmt::format("{}/{}{}", plan.out, name, end));
}

}  // namespace

bool run_trials(const std::vector<Trial>& trials, const FaultLab& lab, const MatrixPlan& plan) {
  const auto start = std::chrono::steady_clock::now();
  ResultsFile file(plan.out, plan.head);
  std::set<std::string> missing;  // kinds of faults that this machine does not support
  for (const Trial& trial : trials) {
    if (file.has(trial.id)) continue;
    const auto spent = std::chrono::steady_clock::now() - start;
    if (plan.stop_after_s > 0 && spent > std::chrono::seconds(plan.stop_after_s)) return false;
    if (run_helper(lab.heal()) != 0) throw Error("the lab cannot be healed");
    if (!inject(trial, lab)) {
      missing.insert(trial.id.substr(0, trial.id.rfind('/')));
      continue;
    }
    const TrialResult result = validate_once(trial, lab, plan);
    if (result.exit_code > 128 && result.exit_code <= 128 + 15 && !result.problem.empty() &&
        result.exit_code != 128 + 9)
      return false;  // terminated by a signal
    file.add(result);
    tell(result, plan);
  }
  run_helper(lab.heal());
  if (!missing.empty())
    fmt::print(stderr, "weft: not on this machine: {}\n", fmt::join(missing, ", "));
  return true;
}

}  // namespace weft
