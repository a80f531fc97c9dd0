// The same loss curve under every launcher: mpirun, srun, torchrun and weft launch.
// labels: multiproc
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "support/jobs/launchers.h"
#include "support/process/shell.h"
#include "support/process/temporary_folder.h"

namespace weft {
namespace {

namespace fs = std::filesystem;

class TrainLaunchers : public ::testing::Test {
 protected:
  std::string train(const std::string& flags) const {
    return fmt::format(
        "{} train --type double --steps 5 --batch 8 --width 32 --layers 2 "
        "--positions 16 --sample 0 --log {}/log {}",
        WEFT_BINARY, folder_.path(), flags);
  }
  std::vector<double> losses(const std::string& command) {
    fs::remove(folder_ / "log");
    const Output output = run(command);
    EXPECT_EQ(output.exit_code, 0) << command << "\n" << output.text;
    std::vector<double> all;
    std::ifstream in(folder_ / "log");
    for (std::string line; std::getline(in, line);)
      all.push_back(nlohmann::json::parse(line)["loss"]);
    EXPECT_EQ(all.size(), 5u) << command << "\n" << output.text;
    return all;
  }
  void expect_the_same(const std::string& command) {
    const auto alone = losses(train("-N 1")), many = losses(command);
    for (std::size_t i = 0; i < std::min(alone.size(), many.size()); ++i)
      EXPECT_NEAR(many[i] / alone[i], 1, 1e-10) << i;
  }

  const testing::TemporaryFolder folder_;
};

TEST_F(TrainLaunchers, Mpirun) {
  if (const auto missing = testing::missing_for_mpirun(); !missing.empty()) GTEST_SKIP() << missing;
  expect_the_same(testing::by_mpirun(8, train("--dp 2 --tp 2 --pp 2")));
}

TEST_F(TrainLaunchers, Srun) {
  if (const auto missing = testing::missing_for_srun(); !missing.empty()) GTEST_SKIP() << missing;
  expect_the_same(testing::by_srun(4, train("--tp 2 --pp 2")));
}

TEST_F(TrainLaunchers, Torchrun) {
  if (const auto missing = testing::missing_for_torchrun(); !missing.empty())
    GTEST_SKIP() << missing;
  expect_the_same(testing::by_torchrun(4, folder_ / "torchrun", train("--tp 2 --zero 1")));
}

TEST_F(TrainLaunchers, TorchrunEnvironment) {
  expect_the_same(testing::in_torchrun_environment(4, train("--pp 2")));
}

TEST_F(TrainLaunchers, WeftLaunch) {
  expect_the_same(
      fmt::format("{} launch -N 4 --hosts 2 --rails 2 -- {}", WEFT_BINARY, train("--tp 2")));
}

}  // namespace
}  // namespace weft
