// The same training by every launcher: one loss curve under mpirun, srun, torchrun and weft launch.
// labels: multiproc
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "support/shell.h"

namespace weft {
namespace {

namespace fs = std::filesystem;

class TrainLaunchers : public ::testing::Test {
 protected:
  TrainLaunchers() {
    char name[] = "/tmp/weft-train-launchers-XXXXXX";
    folder_ = mkdtemp(name);
  }
  ~TrainLaunchers() override { fs::remove_all(folder_); }

  std::string train(const std::string& flags) const {
    return fmt::format(
        "{} train --type double --steps 5 --batch 8 --width 32 --layers 2 "
        "--positions 16 --sample 0 --log {}/log {}",
        WEFT_BINARY, folder_, flags);
  }
  std::vector<double> losses(const std::string& command) {
    fs::remove(folder_ + "/log");
    const Output output = run(command);
    EXPECT_EQ(output.exit_code, 0) << command << "\n" << output.text;
    std::vector<double> all;
    std::ifstream in(folder_ + "/log");
    for (std::string line; std::getline(in, line);)
      all.push_back(nlohmann::json::parse(line)["loss"]);
    return all;
  }
  void expect_the_same(const std::string& command) {
    const auto alone = losses(train("-n 1")), many = losses(command);
    ASSERT_EQ(alone.size(), 5u);
    ASSERT_EQ(many.size(), 5u) << command;
    for (std::size_t i = 0; i < many.size(); ++i) EXPECT_NEAR(many[i] / alone[i], 1, 1e-10) << i;
  }

  std::string folder_;
};

TEST_F(TrainLaunchers, Mpirun) {
#if !WEFT_HAVE_PMIX
  GTEST_SKIP() << "missing capability: PMIx (this build has none)";
#endif
  const Output version = run("mpirun --version");
  if (version.exit_code != 0 || version.text.find("Open MPI") == std::string::npos)
    GTEST_SKIP() << "missing capability: mpirun (Open MPI)";
  expect_the_same("mpirun --allow-run-as-root --oversubscribe -n 8 " +
                  train("--dp 2 --tp 2 --pp 2"));
}

// In a cluster of this one machine, which the script makes.
TEST_F(TrainLaunchers, Srun) {
#if !WEFT_HAVE_PMIX
  GTEST_SKIP() << "missing capability: PMIx (this build has none)";
#endif
  const std::string slurm = WEFT_SOURCE_DIR "/tests/lab/slurm ";
  const Output plugins = run(slurm + "srun --mpi=list");
  if (plugins.exit_code == 77)
    GTEST_SKIP() << plugins.text.substr(plugins.text.find("missing capability"));
  if (plugins.text.find("pmix") == std::string::npos)
    GTEST_SKIP() << "missing capability: Slurm's PMIx plugin";
  expect_the_same(slurm + "srun -n 4 --overcommit --mpi=pmix " + train("--tp 2 --pp 2"));
}

// -r and -t: without them the torchrun of Debian 12 fails by itself.
TEST_F(TrainLaunchers, Torchrun) {
  if (run("torchrun --help").exit_code != 0) GTEST_SKIP() << "missing capability: torchrun";
  expect_the_same(
      fmt::format("torchrun -r 1 -t 1 --log_dir {}/torchrun --master_port {} "
                  "--nproc_per_node 4 --no_python {}",
                  folder_, 10000 + getpid() % 10000, train("--tp 2 --zero 1")));
}

// What torchrun sets for each of its workers.
TEST_F(TrainLaunchers, TorchrunEnvironment) {
  std::string command = "export WORLD_SIZE=4 MASTER_ADDR=127.0.0.1 TORCHELASTIC_RUN_ID=weft_train";
  command += fmt::format(" MASTER_PORT={}; ", 20000 + getpid() % 10000);
  for (int r = 1; r < 4; ++r)
    command += fmt::format("RANK={0} LOCAL_RANK={0} {1} & p{0}=$!; ", r, train("--pp 2"));
  command +=
      fmt::format("RANK=0 LOCAL_RANK=0 {} && wait $p1 && wait $p2 && wait $p3", train("--pp 2"));
  expect_the_same(command);
}

TEST_F(TrainLaunchers, WeftLaunch) {
  expect_the_same(
      fmt::format("{} launch -n 4 --hosts 2 --rails 2 -- {}", WEFT_BINARY, train("--tp 2")));
}

}  // namespace
}  // namespace weft
