// `weft_matrix`: repeatedly injects faults into a lab, validates it, and counts how often the
// report names the fault. This file is independent of how faults are injected and of how reports
// are judged.
#include <fmt/core.h>
#include <fmt/ranges.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "perf/cli/scripts.h"
#include "perf/lab/lab_job.h"
#include "perf/lab/lab_ranks.h"
#include "perf/lab/matrix/matrix_run.h"
#include "perf/lab/matrix/score.h"
#include "topo/base/exit_code.h"
#include "topo/base/status.h"

namespace weft {
namespace {

namespace fs = std::filesystem;

struct MatrixFlags {
  MatrixOptions options;
  int hosts = 4;
  std::string rate;
  std::string faults;
  std::string validate;
  std::string out;
  std::string page;
  std::vector<std::string> with;
  int limit_s = 180;
  int stop_after_s = 0;
  bool list = false;
};

bool in_the_guest() {
  const char* guest = std::getenv("WEFT_LAB_GUEST");
  return guest != nullptr && std::string(guest) == "softroce";
}

// Creates a lab of network namespaces, and removes it in the destructor.
class NetlabForMatrix {
 public:
  NetlabForMatrix(int hosts, int rails, const std::string& rate)
      : script_(find_script("tests/lab/netlab")), name_(fmt::format("m{}", getpid())) {
    const int code =
        run_helper({script_, "up", "--lab", name_, "--hosts", std::to_string(hosts), "--rails",
                    std::to_string(rails), "--rate", rate, "--owner", std::to_string(getpid())});
    if (code != 0) throw Error(fmt::format("netlab up ended with code {}", code));
  }
  ~NetlabForMatrix() { run_helper({script_, "down", "--lab", name_}); }
  NetlabForMatrix(const NetlabForMatrix&) = delete;
  NetlabForMatrix& operator=(const NetlabForMatrix&) = delete;
  const std::string& script() const { return script_; }
  const std::string& name() const { return name_; }

 private:
  std::string script_, name_;
};

MatrixHead head_of(const MatrixFlags& flags) {
  return {flags.options.lab, flags.options.seed, flags.rate, flags.validate};
}

MatrixPlan plan_of(const MatrixFlags& flags) {
  return {head_of(flags), flags.out, flags.limit_s, flags.stop_after_s};
}

int in_netlab(const std::vector<Trial>& trials, const MatrixFlags& flags) {
  if (geteuid() != 0) throw Error("netlab makes network namespaces and needs root");
  const SignalGuard guard;
  const NetlabForMatrix netlab(flags.hosts, flags.options.lab.rails, flags.rate);
  const auto lab =
      commands_of_netlab(flags.options.lab, netlab.script(), WEFT_BINARY, netlab.name());
  return run_trials(trials, *lab, plan_of(flags)) ? kExitOk : kExitUnknown;
}

int in_guest(const std::vector<Trial>& trials, const MatrixFlags& flags) {
  const SignalGuard guard;
  const auto lab = commands_of_softroce(flags.options.lab, WEFT_BINARY);
  return run_trials(trials, *lab, plan_of(flags)) ? kExitOk : kExitUnknown;
}

// Runs the same command in a guest, whose /out is the folder of --out.
int in_a_new_guest(const MatrixFlags& flags) {
  Command argv = {find_script("tests/lab/softroce"), "run"};
  const auto add = [&argv](std::initializer_list<std::string> words) {
    argv.insert(argv.end(), words);
  };
  add({"--hosts", std::to_string(flags.hosts), "--rails", std::to_string(flags.options.lab.rails)});
  add({"--out", flags.out, "--rate", flags.rate});
  // Allow the last run to end, and a minute more.
  add({"--timeout",
       flags.stop_after_s > 0 ? std::to_string(flags.stop_after_s + flags.limit_s + 60) : "86400"});
  const MatrixOptions& options = flags.options;
  add({"--", this_binary(), "--lab", "softroce", "--out", "/out"});
  add({"--hosts", std::to_string(flags.hosts), "--rails", std::to_string(options.lab.rails)});
  add({"--rate", flags.rate});
  if (options.repeat > 0)
    add({"--repeat", std::to_string(options.repeat)});
  else
    add({"--runs", std::to_string(options.runs)});
  add({"--pairs", std::to_string(options.pairs), "--clean", std::to_string(options.clean)});
  add({"--seed", std::to_string(options.seed), "--limit-s", std::to_string(flags.limit_s)});
  add({"--stop-after-s", std::to_string(flags.stop_after_s)});
  if (!flags.faults.empty()) add({"--faults", flags.faults});
  if (!flags.validate.empty()) add({"--validate", flags.validate});
  if (options.busy_core) add({"--busy-core"});
  const SignalGuard guard;
  return run_ranks({{argv, {}, -1}}, std::chrono::seconds(10));
}

void write_outcome(const MatrixFlags& flags) {
  std::vector<MatrixResults> labs = {read_results(results_file(flags.out), head_of(flags))};
  const Score counted = score(labs[0].runs);
  fmt::print("\n{}", to_text(counted));
  write_text(flags.out + "/score.json", to_json(counted).dump(2) + "\n");
  for (const std::string& folder : flags.with) {
    if (!fs::exists(results_file(folder)))
      throw Error(fmt::format("--with {}: runs.jsonl is missing", folder));
    labs.push_back(read_results(results_file(folder), {}));
  }
  if (!flags.page.empty()) write_text(flags.page, to_markdown(labs));
}

int run_matrix(MatrixFlags& flags) {
  MatrixLab& lab = flags.options.lab;
  const bool netlab = lab.name == "netlab";
  if (flags.rate.empty()) flags.rate = netlab ? "400mbit" : "80mbit";
  for (const std::string& rate : split_list(flags.rate)) lab_gbps_of(rate);
  if (flags.out.empty()) flags.out = "matrix-" + lab.name;
  for (int h = 0; h < flags.hosts; ++h) lab.hosts.push_back(fmt::format("h{}", netlab ? h + 1 : h));
  flags.options.faults = split_list(flags.faults);
  const std::vector<Trial> trials = draw_trials(flags.options);
  if (flags.list) {
    for (const Trial& trial : trials) {
      std::vector<std::string> faults;
      for (const LabFault& fault : trial.faults) faults.push_back(in_words(fault));
      fmt::print("{:<22} {}\n", trial.id, fmt::join(faults, "; "));
    }
    return kExitOk;
  }
  std::error_code error;
  fs::create_directories(flags.out, error);
  flags.out = fs::absolute(flags.out).string();
  if (access(flags.out.c_str(), W_OK) != 0)
    throw Error(fmt::format("--out {}: cannot be made, or not written to", flags.out));
  if (!netlab && in_the_guest()) return in_guest(trials, flags);
  const int code = netlab ? in_netlab(trials, flags) : in_a_new_guest(flags);
  write_outcome(flags);
  return code;
}

void add_flags(CLI::App& matrix, MatrixFlags& flags) {
  MatrixOptions& options = flags.options;
  options.lab.name = "netlab";
  options.lab.rails = 2;
  matrix.add_option("--lab", options.lab.name, "netlab (needs root) or softroce")
      ->check(CLI::IsMember({"netlab", "softroce"}))
      ->capture_default_str();
  matrix.add_option("--hosts", flags.hosts, "hosts")
      ->check(CLI::Range(2, 64))
      ->capture_default_str();
  matrix.add_option("--rails", options.lab.rails, "ports per host")
      ->check(CLI::Range(1, 16))
      ->capture_default_str();
  matrix.add_option("--rate", flags.rate, "rate of a port (400mbit; softroce 80mbit)");
  auto* runs =
      matrix.add_option("--runs", options.runs, "runs of each kind of fault and class of place")
          ->check(CLI::Range(0, 10000))
          ->capture_default_str();
  matrix
      .add_option("--repeat", options.repeat,
                  "instead: runs of each kind of fault, whose classes of place take turns")
      ->check(CLI::Range(1, 10000))
      ->excludes(runs);
  matrix.add_option("--pairs", options.pairs, "runs with two faults")
      ->check(CLI::Range(0, 100000))
      ->capture_default_str();
  matrix.add_option("--clean", options.clean, "runs without a fault, among the others")
      ->check(CLI::Range(0, 100000))
      ->capture_default_str();
  matrix.add_flag("--busy-core", options.busy_core, "another program keeps one core busy");
  matrix.add_option("--seed", options.seed, "hosts, rails and strengths are drawn from it")
      ->capture_default_str();
  std::vector<std::string_view> names;
  for (const FaultRow& row : fault_rows()) names.push_back(row.name);
  matrix.add_option("--faults", flags.faults,
                    fmt::format("some of {} (default: all of the lab)", fmt::join(names, ", ")));
  matrix.add_option("--validate", flags.validate, "further words for weft validate");
  matrix.add_option("--limit-s", flags.limit_s, "seconds for one validation")
      ->check(CLI::Range(1, 86400))
      ->capture_default_str();
  matrix
      .add_option("--stop-after-s", flags.stop_after_s,
                  "start no run after this many seconds; the same command continues later")
      ->check(CLI::Range(0, 864000));
  matrix.add_option("--out", flags.out, "folder of the results (default: matrix-<lab>)");
  matrix.add_option("--page", flags.page, "write the results as a page (markdown)");
  matrix.add_option("--with", flags.with, "folders of other results, for the page");
  matrix.add_flag("--list", flags.list, "print the runs, and run nothing");
  matrix.footer("Example: weft_matrix --hosts 4 --rails 2 --runs 1 --out results");
}

}  // namespace
}  // namespace weft

int main(int argc, char** argv) {
  CLI::App app{"Break a lab on purpose, validate it, and count how often the fault is named",
               "weft_matrix"};
  weft::MatrixFlags flags;
  weft::add_flags(app, flags);
  CLI11_PARSE(app, argc, argv);
  try {
    return weft::run_matrix(flags);
  } catch (const std::exception& error) {
    fmt::print(stderr, "weft_matrix: {}\n", error.what());
    return weft::kExitError;
  }
}
