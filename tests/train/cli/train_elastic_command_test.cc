// `weft train --elastic` on real processes: ranks die and ranks join, without a restart.
// labels: multiproc
#include <filesystem>
#include <string>
#include <utility>
#include <vector>

#include "support/train/train_command.h"

namespace weft {
namespace {

namespace fs = std::filesystem;

class TrainElastic : public testing::TrainCommand {
 protected:
  // The same processes continue: the job is not restarted.
  void expect_said(const std::vector<std::string>& all) {
    for (const std::string& said : all)
      EXPECT_NE(output_.text.find(said), std::string::npos) << said << "\n" << output_.text;
    EXPECT_EQ(output_.text.find("again, with"), std::string::npos) << output_.text;
  }
  std::map<int, double> elastic(const std::string& flags) {
    fs::remove_all(folder_ / "save");
    return losses(flags + " --deterministic --elastic --save " + folder_ / "save");
  }
};

// Without ZeRO the remaining ranks continue at once, in a smaller World with the state in memory:
// nothing was saved. A replica is removed as a whole; more are, if the batch is not divisible.
TEST_F(TrainElastic, ALostReplicaGoesAtOnce) {
  const auto whole = losses("--deterministic");
  const std::pair<const char*, const char*> jobs[] = {
      {"-N 4 --dp 4 --kill 1:8", "2 go on after step 7"},
      {"-N 4 --dp 2 --pp 2 --kill 0:8", "1 goes on after step 7"},
      {"-N 4 --dp 2 --tp 2 --kill 0:8", "1 goes on after step 7"},
      {"-N 6 --dp 3 --tp 2 --hosts 3 --kill 3:1", "2 go on after step 0"}};
  for (const auto& [job, goes_on] : jobs) {
    const std::string batch =
        std::string(job).find("--dp 3") == std::string::npos ? "" : " --batch 6 --micro-batch 1";
    const auto want = batch.empty() ? whole : losses("--deterministic" + batch);
    const auto got = elastic(std::string(job) + batch + " --save-every 100");
    expect_said({goes_on});
    EXPECT_EQ(output_.text.find("goes on after step 0 of"), std::string::npos) << output_.text;
    // Pipelines and tensor parallelism add the gradient's squares in another order.
    if (std::string(job).find("p 2 ") == std::string::npos)
      EXPECT_EQ(want, got) << job;
    else
      expect_near(want, got);
  }
}

// A tensor-parallel group without dead ranks waits for a rank of another group, which waits for the
// dead rank. All ranks detect the failure long before the timeout, and continue.
TEST_F(TrainElastic, RanksThatDoNotKnowTheDeadOneHearOfIt) {
  const auto got = elastic(
      "-N 6 --dp 3 --tp 2 --hosts 3 --batch 6 --micro-batch 1 --kill 2:5 "
      "--timeout-ms 600000");
  expect_said({"2 go on after step 4"});
  EXPECT_EQ(output_.text.find("continue without rank"), std::string::npos) << output_.text;
  EXPECT_EQ(got.size(), 12u);
}

// With ZeRO a part of the state is lost: the same processes continue from the last checkpoint, at
// most --save-every steps earlier, or from the start.
TEST_F(TrainElastic, WithZeroTheCheckpointCounts) {
  const auto whole = losses("--deterministic");
  const std::pair<const char*, const char*> jobs[] = {
      {"-N 4 --dp 4 --zero 1 --kill 1:8", "goes on after step 6 of"},
      {"-N 4 --dp 4 --zero 2 --kill 0:8 --hosts 4", "goes on after step 6 of"},
      {"-N 4 --dp 4 --zero 3 --kill 3:8", "goes on after step 6 of"},
      {"-N 4 --dp 4 --zero 3 --kill 3:2", "no checkpoint there yet, from the start"},
      {"-N 4 --dp 2 --pp 2 --zero 1 --kill 0:8", "goes on after step 6 of"},
      {"-N 4 --dp 2 --tp 2 --zero 2 --kill 0:8", "goes on after step 6 of"},
      {"-N 4 --dp 2 --tp 2 --zero 3 --kill 3:9", "goes on after step 6 of"}};
  for (const auto& [job, from] : jobs) {
    const auto got = elastic(std::string(job) + " --save-every 3");
    expect_said({from, std::string(job).find("p 2 ") == std::string::npos
                           ? "2 replicas go on with what is saved"
                           : "1 replica goes on with what is saved"});
    expect_near(whole, got);
  }
}

// With --restart a new process replaces the dead one; it joins at a checkpoint, together with the
// remaining ranks of its replica.
TEST_F(TrainElastic, NewRanksJoinAtACheckpoint) {
  const auto whole = losses("--deterministic");
  const std::pair<const char*, const char*> jobs[] = {
      {"-N 4 --dp 4 --kill 2:6 --save-every 2", "2 go on after step 5"},
      {"-N 4 --dp 4 --zero 3 --kill 0:5 --save-every 3", "goes on after step 3 of"},
      {"-N 4 --dp 2 --pp 2 --zero 1 --kill 3:5 --save-every 3", "goes on after step 3 of"}};
  for (const auto& [job, smaller] : jobs) {
    // Steps of 150 ms: the new process starts before the last checkpoint.
    const auto got = elastic(std::string(job) + " --restart 1 --straggler-us 150000");
    expect_said({smaller, "and a new one", "# 2 ranks join", "replicas go on with what is saved"});
    expect_near(whole, got);
  }
}

// A pipeline without another replica waits for the new rank, also if its first rank died.
TEST_F(TrainElastic, APipelineWaitsForANewRank) {
  const auto whole = losses("--deterministic");
  for (const char* kill : {"1:8", "0:8"}) {
    const auto got = elastic(std::string("-N 2 --pp 2 --save-every 3 --restart 1 --kill ") + kill);
    expect_said({"1 still running, and a new one", "1 replica goes on with what is saved",
                 "goes on after step 6 of"});
    expect_near(whole, got);
  }
}

TEST_F(TrainElastic, EndsWhereThereIsNoSmallerJob) {
  for (const char* job : {"-N 1 --kill 0:3", "-N 2 --pp 2 --kill 1:3"}) {
    fs::remove_all(folder_ / "save");
    const Output out = run(command(std::string(job) + " --elastic --save " + folder_ / "save"));
    EXPECT_EQ(out.exit_code, 2) << out.text;
    EXPECT_NE(out.text.find("there is no smaller one for --elastic"), std::string::npos)
        << out.text;
  }
}

}  // namespace
}  // namespace weft
