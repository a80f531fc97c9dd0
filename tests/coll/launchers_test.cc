// labels: multiproc
// The same job by every launcher: mpirun, srun, torchrun, weft launch.
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>

#include "support/shell.h"

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

  std::string perf(const std::string& arguments = "all_reduce -b 8 -e 64K -f 2 -i 3") const {
    return fmt::format("{} perf {} --timeout-ms 30000 --json {}", WEFT_BINARY, arguments,
                       json_.string());
  }
  // Exit code 0, one report of a job of so many ranks, all rows right.
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
#if !WEFT_HAVE_PMIX
  GTEST_SKIP() << "missing capability: PMIx (this build has none)";
#endif
  const Output version = run("mpirun --version");
  if (version.exit_code != 0 || version.text.find("Open MPI") == std::string::npos)
    GTEST_SKIP() << "missing capability: mpirun (Open MPI)";
  expect_right(run("mpirun --allow-run-as-root --oversubscribe -n 4 " + perf()), 4);
}

// In a cluster of this one machine, which the script makes.
TEST_F(Launchers, Srun) {
#if !WEFT_HAVE_PMIX
  GTEST_SKIP() << "missing capability: PMIx (this build has none)";
#endif
  const std::string slurm = WEFT_SOURCE_DIR "/tests/lab/slurm ";
  const Output plugins = run(slurm + "srun --mpi=list");
  if (plugins.exit_code == 77)
    GTEST_SKIP() << plugins.text.substr(plugins.text.find("missing capability"));
  if (plugins.text.find("pmix") == std::string::npos)
    GTEST_SKIP() << "missing capability: Slurm's PMIx plugin";
  expect_right(run(slurm + "srun -n 4 --overcommit --mpi=pmix " + perf()), 4);
}

// -r and -t: without them the torchrun of Debian 12 (torch 1.13 with Python 3.11) fails by itself.
TEST_F(Launchers, Torchrun) {
  if (run("torchrun --help").exit_code != 0) GTEST_SKIP() << "missing capability: torchrun";
  const std::string logs = json_.string() + ".torchrun";
  const Output output = run(fmt::format(
      "torchrun -r 1 -t 1 --log_dir {} --nproc_per_node 4 --no_python {}", logs, perf()));
  std::filesystem::remove_all(logs);
  expect_right(output, 4);
}

// What torchrun sets for each of its workers.
TEST_F(Launchers, TorchrunEnvironment) {
  const int port = 20000 + getpid() % 10000;
  std::string command = "export WORLD_SIZE=3 MASTER_ADDR=127.0.0.1 TORCHELASTIC_RUN_ID=weft_test";
  command += fmt::format(" MASTER_PORT={}; ", port);
  for (int r = 1; r < 3; ++r)
    command += fmt::format("RANK={0} LOCAL_RANK={0} {1} & p{0}=$!; ", r, perf());
  command += fmt::format("RANK=0 LOCAL_RANK=0 {} && wait $p1 && wait $p2", perf());
  expect_right(run(command), 3);
}

TEST_F(Launchers, WeftLaunch) {
  expect_right(run(fmt::format("{} launch -n 3 -- {}", WEFT_BINARY, perf())), 3);
}

TEST_F(Launchers, WeftLaunchWithEmulatedHosts) {
  expect_right(run(fmt::format("{} launch -n 4 --hosts 2 --rails 2 -- {}", WEFT_BINARY, perf())),
               4);
}

// A rank that dies ends the whole job with its exit code, and the survivors say who it was.
TEST_F(Launchers, WeftLaunchOfARankThatDies) {
  const std::string body = fmt::format(
      "if [ $WEFT_RANK = 1 ]; then {0} & sleep 1.5; kill -9 $!; exit 7; fi; exec {0}",
      fmt::format("{} perf all_reduce -b 1M -e 1M -i 1000000 --timeout-ms 20000", WEFT_BINARY));
  const Output output = run(fmt::format("{} launch -n 3 -- sh -c '{}'", WEFT_BINARY, body));
  EXPECT_NE(output.exit_code, 0);
  EXPECT_NE(output.text.find("rank 1"), std::string::npos) << output.text;
}

}  // namespace
}  // namespace weft
