// `weft train` on real processes: layouts, death and resumption.
// labels: multiproc
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <vector>

#include "support/shell.h"
#include "support/temporary_folder.h"

namespace weft {
namespace {

namespace fs = std::filesystem;

class TrainCommand : public ::testing::Test {
 protected:
  std::string command(const std::string& flags) const {
    return fmt::format(
        "{} train --type double --steps 12 --batch 8 --width 32 --layers 2 "
        "--positions 16 --sample 0 {}",
        WEFT_BINARY, flags);
  }
  // Step -> loss, the last one where a step was done again.
  std::map<int, double> losses(const std::string& flags) {
    const std::string log = folder_ / fmt::format("log{}", ++logs_);
    output_ = run(command(flags + " --log " + log));
    EXPECT_EQ(output_.exit_code, 0) << output_.text;
    std::map<int, double> all;
    std::ifstream in(log);
    for (std::string line; std::getline(in, line);) {
      const auto step = nlohmann::json::parse(line);
      all[step["step"]] = step["loss"];
    }
    return all;
  }
  static void expect_near(const std::map<int, double>& a, const std::map<int, double>& b) {
    ASSERT_EQ(a.size(), b.size());
    for (const auto& [step, loss] : a) EXPECT_NEAR(b.at(step) / loss, 1, 1e-10) << step;
  }

  const testing::TemporaryFolder folder_;
  int logs_ = 0;
  Output output_;
};

TEST_F(TrainCommand, OneAndEightRanksAndEmulatedHosts) {
  const auto one = losses("");
  ASSERT_EQ(one.size(), 12u);
  EXPECT_LT(one.at(12), one.at(1) - 0.3);
  expect_near(one, losses("-n 8 --dp 2 --tp 2 --pp 2"));
  expect_near(one, losses("-n 8 --tp 2 --pp 2 --hosts 2 --rails 2 --zero 1"));
}

// The table of the schedule, and that of what four ranks really did, are the same.
TEST_F(TrainCommand, ATraceHasTheElevenSteps) {
  const std::string trace = folder_ / "run.json";
  losses("-n 4 --pp 4 --layers 4 --schedule dataflow --batch 4 --trace " + trace);
  const std::string explain =
      std::string(WEFT_BINARY) + " train --schedule dataflow --stages 4 --explain";
  const Output planned = run(explain + " --microbatches 4");
  const Output done = run(explain + " --microbatches 4 --of " + trace);
  EXPECT_EQ(done.exit_code, 0) << done.text;
  EXPECT_EQ(done.text, planned.text);
  EXPECT_NE(done.text.find("active %: 25/50/75/100/75/50/75/100/75/50/25"), std::string::npos);
  // A trace of something else is not taken for it.
  const Output other = run(explain + " --microbatches 5 --of " + trace);
  EXPECT_EQ(other.exit_code, 4) << other.text;
  EXPECT_NE(other.text.find("12 F, B and W are in it, 15 in the schedule"), std::string::npos)
      << other.text;
  std::ofstream(folder_ / "run.pipeline.rank2.json") << "{}";
  EXPECT_EQ(run(explain + " --microbatches 4 --of " + trace).exit_code, 4);
}

TEST_F(TrainCommand, SamplesTextAtTheEnd) {
  const Output out = run(command("--sample 40 --prompt hello"));
  EXPECT_EQ(out.exit_code, 0);
  EXPECT_NE(out.text.find("# sample:\nhello"), std::string::npos) << out.text;
}

// Kill -9 of a rank: the job says so, starts again from its checkpoint, and the curve is the same
// bits as without.
TEST_F(TrainCommand, GoesOnAfterARankWasKilled) {
  const std::string layout = "-n 4 --dp 2 --pp 2 --deterministic";
  const auto whole = losses(layout);
  const auto broken =
      losses(layout + " --save-every 3 --restart 1 --kill 3:8 --save " + folder_ / "save");
  EXPECT_NE(output_.text.find("killed by signal 9"), std::string::npos) << output_.text;
  EXPECT_NE(output_.text.find("goes on after step 6"), std::string::npos) << output_.text;
  EXPECT_EQ(whole, broken);
}

TEST_F(TrainCommand, GoesOnWithFewerReplicas) {
  const auto whole = losses("-n 4 --dp 4");
  const auto broken = losses(
      "-n 4 --dp 4 --zero 2 --elastic --restart 1 --save-every 3 "
      "--kill 1:8 --save " +
      folder_ / "save");
  EXPECT_NE(output_.text.find("with 2 ranks"), std::string::npos) << output_.text;
  expect_near(whole, broken);
}

// A checkpoint of one layout goes on in others.
TEST_F(TrainCommand, ResumesInAnotherLayout) {
  const auto whole = losses("");
  const std::string save = " --save-every 6 --save " + folder_ / "save";
  run(command("-n 4 --dp 2 --tp 2 --zero 3 --kill 0:7" + save));
  for (const char* layout : {"-n 4 --pp 2 --tp 2", "-n 2 --dp 2 --zero 2", "-n 1"}) {
    fs::copy(folder_ / "save", folder_ / "copy", fs::copy_options::recursive);
    const auto rest =
        losses(std::string(layout) + " --resume --save-every 100 --save " + folder_ / "copy");
    ASSERT_EQ(rest.size(), 6u) << output_.text;
    for (const auto& [step, loss] : rest)
      EXPECT_NEAR(loss / whole.at(step), 1, 1e-10) << layout << " step " << step;
    fs::remove_all(folder_ / "copy");
  }
}

TEST_F(TrainCommand, RefusesWhatCannotBe) {
  const auto refuses = [&](const std::string& flags, const char* why) {
    const Output out = run(command(flags));
    EXPECT_EQ(out.exit_code, 4) << out.text;
    EXPECT_NE(out.text.find(why), std::string::npos) << out.text;
  };
  refuses("-n 2 --dp 2 --batch 7", "--batch 7 is no multiple");
  refuses("-n 3 --tp 3", "--heads 4 with --tp 3");
  refuses("-n 4 --dp 3", "but the job has 4 ranks");
  refuses("--restart 2", "--save FOLDER");
  refuses("-n 2 --pp 2 --schedule interleaved --chunks 2", "--layers 2 with 4 stages");
  refuses("-n 2 --dp 2 --order tp,dp", "--order tp,dp: name each");
  refuses("--data /nowhere", "--data /nowhere: cannot be read");
}

}  // namespace
}  // namespace weft
