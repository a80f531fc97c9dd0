// labels: multiproc
// sanitize: long
// The same job under every launcher: mpirun, srun, torchrun, weft launch.
#include "support/jobs/launchers.h"

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>

#include "support/process/shell.h"

namespace weft {
namespace {

class Launchers : public ::testing::Test {
 protected:
  void SetUp() override {
    json_ =
        std::filesystem::temp_directory_path() / fmt::format("weft_launchers_{}.json", getpid());
    std::filesystem::remove(json_);
  }
  void TearDown() override { std::filesystem::remove(json_); }

  std::string perf(const std::string& arguments = "all_reduce -b 8 -e 64K -f 2 -n 3") const {
    return fmt::format("{} perf {} --timeout-ms 30000 --json {}", WEFT_BINARY, arguments,
                       json_.string());
  }
  // Exit code 0, one report of a job of `ranks` ranks, all rows right.
  void expect_right(const Output& output, int ranks, std::size_t rows = 14) {
    ASSERT_EQ(output.exit_code, 0) << output.text;
    std::ifstream file(json_);
    const auto json = nlohmann::json::parse(file, nullptr, false);
    ASSERT_FALSE(json.is_discarded()) << output.text;
    EXPECT_EQ(json["ranks"], ranks);
    ASSERT_EQ(json["rows"].size(), rows) << json;
    for (const auto& row : json["rows"]) EXPECT_EQ(row["wrong"], 0) << row;
    EXPECT_EQ(json["rows"].back()["bytes"], 65536) << json;
  }

  std::filesystem::path json_;
};

TEST_F(Launchers, Mpirun) {
  if (const auto missing = testing::missing_for_mpirun(); !missing.empty()) GTEST_SKIP() << missing;
  expect_right(run(testing::by_mpirun(4, perf())), 4);
}

TEST_F(Launchers, Srun) {
  if (const auto missing = testing::missing_for_srun(); !missing.empty()) GTEST_SKIP() << missing;
  expect_right(run(testing::by_srun(4, perf())), 4);
}

TEST_F(Launchers, Torchrun) {
  if (const auto missing = testing::missing_for_torchrun(); !missing.empty())
    GTEST_SKIP() << missing;
  const std::string logs = json_.string() + ".torchrun";
  const Output output = run(testing::by_torchrun(4, logs, perf()));
  std::filesystem::remove_all(logs);
  expect_right(output, 4);
}

TEST_F(Launchers, TorchrunEnvironment) {
  expect_right(run(testing::in_torchrun_environment(3, perf())), 3);
}

TEST_F(Launchers, WeftLaunch) {
  expect_right(run(fmt::format("{} launch -N 3 -- {}", WEFT_BINARY, perf())), 3);
}

TEST_F(Launchers, WeftLaunchWithEmulatedHosts) {
  expect_right(run(fmt::format("{} launch -N 4 --hosts 2 --rails 2 -- {}", WEFT_BINARY, perf())),
               4);
}

// A rank's death ends the whole job with its exit code, and the survivors name it.
TEST_F(Launchers, WeftLaunchOfARankThatDies) {
  const std::string body = fmt::format(
      "if [ $WEFT_RANK = 1 ]; then {0} & sleep 1.5; kill -9 $!; exit 7; fi; exec {0}",
      fmt::format("{} perf all_reduce -b 1M -e 1M -n 1000000 --timeout-ms 20000", WEFT_BINARY));
  const Output output = run(fmt::format("{} launch -N 3 -- sh -c '{}'", WEFT_BINARY, body));
  EXPECT_NE(output.exit_code, 0);
  EXPECT_NE(output.text.find("rank 1"), std::string::npos) << output.text;
}

}  // namespace
}  // namespace weft
