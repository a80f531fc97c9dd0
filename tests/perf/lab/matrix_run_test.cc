// The loop of a fault matrix over a mock lab: the order of runs, and where a stopped matrix
// resumes.
// labels: multiproc
#include "perf/lab/matrix/matrix_run.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <sstream>

#include "perf/lab/lab_ranks.h"
#include "topo/base/status.h"

namespace weft {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;
using ::testing::StartsWith;

// Records its calls; its validation finds the last injected fault, if any.
class NotedLab final : public FaultLab {
 public:
  explicit NotedLab(std::string folder) : folder_(std::move(folder)) {}
  const MatrixLab& shape() const override { return lab_; }
  Command inject(const LabFault& fault) const override {
    return {"sh", "-c",
            "echo 'break " + in_words(fault) + "' >>" + folder_ + "/notes; echo '" + fault.host +
                "' >" + folder_ + "/broken; exit " + std::to_string(inject_code)};
  }
  Command heal() const override {
    return {"sh", "-c", "echo heal >>" + folder_ + "/notes; rm -f " + folder_ + "/broken"};
  }
  Command ranks(const Command& weft) const override {
    const std::string finding =
        R"({"id": "port-rate", "severity": "fail", "where": {"kind": "port", "host": "'$(cat )" +
        folder_ + R"(/broken)'", "rail": 0, "direction": "transmit"}})";
    return {"sh", "-c",
            "echo validate >>" + folder_ + "/notes; if [ -e " + folder_ + "/broken ]; then f='" +
                finding + "'; v=critical; else f=; v=ok; fi; echo '{\"schema\": " +
                "\"weft.validate/2\", \"verdict\": \"'$v'\", \"findings\": ['$f']}' >" + weft[2]};
  }
  int inject_code = 0;

 private:
  MatrixLab lab_ = {"netlab", {"h1", "h2", "h3"}, 1};
  std::string folder_;
};

class MatrixRun : public ::testing::Test {
 protected:
  void SetUp() override {
    folder_ = (fs::temp_directory_path() / ("matrix_run_" + std::to_string(getpid()))).string();
    fs::create_directories(folder_ + "/out");
    options_.lab = {"netlab", {"h1", "h2", "h3"}, 1};
    options_.runs = 2;
    options_.clean = 1;
    options_.faults = {"rate-90"};
    plan_ = {{options_.lab, 1, "400mbit", "--budget 20s"}, folder_ + "/out", 60, 0};
  }
  void TearDown() override { fs::remove_all(folder_); }
  std::string text_of(const std::string& name) const {
    std::ostringstream text;
    text << std::ifstream(folder_ + "/" + name).rdbuf();
    return text.str();
  }
  std::vector<Trial> transmit_trials() const {
    std::vector<Trial> trials = draw_trials(options_);
    std::erase_if(trials, [](const Trial& trial) {
      return !trial.id.starts_with("rate-90-transmit") && !trial.id.starts_with("clean");
    });
    return trials;
  }

  std::string folder_;
  MatrixOptions options_;
  MatrixPlan plan_;
};

TEST_F(MatrixRun, HealsBreaksValidatesAndGoesOnWhereItStopped) {
  const NotedLab lab(folder_);
  const SignalGuard guard;
  std::vector<Trial> trials = transmit_trials();
  ASSERT_EQ(trials.size(), 3);
  const std::vector<Trial> first(trials.begin(), trials.begin() + 2);
  EXPECT_TRUE(run_trials(first, lab, plan_));
  fs::remove(folder_ + "/notes");
  EXPECT_TRUE(run_trials(trials, lab, plan_));
  std::string expected = "heal\n";
  for (const LabFault& fault : trials[2].faults) expected += "break " + in_words(fault) + "\n";
  EXPECT_EQ(text_of("notes"), expected + "validate\nheal\n") << "the first two are not run again";

  const MatrixResults results = read_results(results_file(plan_.out), {});
  ASSERT_EQ(results.runs.size(), 3);
  for (const TrialResult& run : results.runs) {
    EXPECT_EQ(run.problem, "");
    EXPECT_TRUE(run.match.false_alarms.empty()) << run.trial.id;
    for (const Named& named : run.match.faults) EXPECT_TRUE(named.kind && named.place);
  }
}

TEST_F(MatrixRun, ResultsOfAnotherMatrixAreNotMixed) {
  const NotedLab lab(folder_);
  const SignalGuard guard;
  EXPECT_TRUE(run_trials({}, lab, plan_));
  plan_.head.seed = 2;
  try {
    run_trials({}, lab, plan_);
    FAIL();
  } catch (const Error& error) {
    EXPECT_THAT(error.what(), HasSubstr("runs.jsonl has other runs"));
  }
}

TEST_F(MatrixRun, WhatThisMachineCannotBreakIsLeftOut) {
  NotedLab lab(folder_);
  lab.inject_code = 3;
  const SignalGuard guard;
  EXPECT_TRUE(run_trials(transmit_trials(), lab, plan_));
  EXPECT_EQ(read_results(results_file(plan_.out), {}).runs.size(), 1) << "the clean one";
  lab.inject_code = 4;
  EXPECT_THROW(run_trials(transmit_trials(), lab, plan_), Error);
}

TEST(ShellLine, HasFaultsInMidRunABusyCoreAndTheLimit) {
  LabFault flap;
  flap.kind = "flap";
  flap.host = "h2";
  flap.rail = 1;
  flap.strength = "200ms";
  const auto lab = commands_of_netlab({"netlab", {"h1", "h2"}, 2}, "/netlab", "/weft", "x");
  Trial trial = {"flap/0", {flap}, 2.5, true};
  const std::string line = shell_line(trial, *lab, {"validate", "--json", "/a b.json"}, "/log", 90);
  EXPECT_THAT(line, StartsWith("{ sleep 2.5; /netlab fault --lab x flap h2r1 200ms; } &"));
  EXPECT_THAT(line, HasSubstr("taskset -c 0"));
  EXPECT_THAT(line, HasSubstr("timeout -k 15 90 /weft lab netlab --use x -- weft validate --json "
                              "'/a b.json' >/log 2>&1"));
  LabFault flip;
  flip.kind = "flipped-bit";
  flip.host = "h2";
  const auto softroce = commands_of_softroce({"softroce", {"h0", "h1", "h2"}, 1}, "/weft");
  EXPECT_THAT(shell_line({"flipped-bit/0", {flip}}, *softroce, {"validate"}, "/log", 90),
              StartsWith("WEFT_FAULT=flip:rank=2,every=40,min=1024 timeout"));
  EXPECT_EQ(quoted("it's"), "'it'\\''s'");
}

}  // namespace
}  // namespace weft
