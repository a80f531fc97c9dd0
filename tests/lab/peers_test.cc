// `weft bench peers` reports medians, verdicts and failures correctly. The peers' speed is not
// tested here, only that their drivers build and give a checked result.
// labels: multiproc
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>

#include "support/process/shell.h"

namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;
using weft::Output;
using weft::run;

// The command with which ./weft starts the peers.
const std::string kPeers = WEFT_SOURCE_DIR "/tests/peers/compare --weft " WEFT_BINARY;
const std::string kChoice = WEFT_SOURCE_DIR "/tests/peers/choice --weft " WEFT_BINARY;

bool there(const std::string& program) { return run("command -v " + program).exit_code == 0; }

class Peers : public ::testing::Test {
 protected:
  void SetUp() override {
    if (!there("python3")) GTEST_SKIP() << "missing capability: python3";
    folder_ = fs::temp_directory_path() / ("peers_test_" + std::to_string(getpid()));
    fs::create_directories(folder_);
  }
  void TearDown() override {
    if (!folder_.empty()) fs::remove_all(folder_);
  }
  std::string file(const std::string& name) const { return (folder_ / name).string(); }
  nlohmann::json report() const {
    std::ifstream stream(file("report"));
    return nlohmann::json::parse(stream);
  }
  Output bench(const std::string& options) const {
    return run(kPeers + " --rounds 3 --json " + file("report") + " --build " + file("build") + " " +
               options);
  }
  // Replaces weft: reports 30, 10 and 20 us in its three rounds, and `wrong` wrong elements.
  std::string stand_in(const std::string& wrong) const {
    std::ofstream script(file("weft"));
    script << "#!/bin/bash\n"
              "n=$(cat "
           << file("n") << " 2>/dev/null || echo 0); echo $((n + 1)) >" << file("n")
           << "\n"
              "times=(30 10 20)\n"
              "wrong=("
           << wrong
           << ")\n"
              "while [ \"$1\" != --json ]; do shift; done\n"
              "echo '{\"rows\": [{\"time_us_p50\": '${times[n]}', \"wrong\": '${wrong[n]}'}]}' "
              ">$2\n";
    script.close();
    fs::permissions(file("weft"), fs::perms::owner_all);
    return " --weft " + file("weft");
  }

 private:
  fs::path folder_;
};

TEST_F(Peers, ReportsTheMedianOfTheRounds) {
  const Output result =
      bench("--only weft_malloc -N 2 --sizes 8 --collectives all_reduce" + stand_in("0 0 0"));
  // The target is a ratio to a peer that did not run.
  EXPECT_EQ(result.exit_code, 3) << result.text;
  EXPECT_THAT(result.text, HasSubstr("UNKNOWN all_reduce, 2 ranks, malloc memory, 8 B"));
  const nlohmann::json json = report();
  EXPECT_EQ(json["schema"], "weft.peers/1");
  const nlohmann::json& weft = json["rows"][0]["contenders"]["weft_malloc"];
  EXPECT_EQ(weft["time_us"], 20);
  EXPECT_EQ(weft["rounds"].size(), 3U);
}

// Exit code 1 would mean a missed target.
TEST_F(Peers, WhatMakesNoSenseIsAnErrorAndNoVerdict) {
  const std::string peers = kPeers + " --only weft_malloc";
  const std::string choice = kChoice + " -N 2 --layouts '' -e 8 --rounds 1";
  for (const std::string& command :
       {peers + " --sizes 12Q", peers + " -N x", peers + " -N 0", peers + " --frobnicate",
        peers + " --scenario netlab --layouts 2x2", peers + " -N 2 --sizes 8 --json /nowhere/x",
        kPeers + " --only nobody", choice + " --json /nowhere/x", choice + " --frobnicate",
        peers + " -N ²", peers + " -N 2 --limit-s nan", peers + " -N 2 --scale inf",
        peers + " --weft /nowhere/weft", kChoice + " -N '' --layouts ²x1x1",
        kChoice + " -N '' --layouts ''", choice + " --weft /nowhere/weft"}) {
    const Output result = run(command);
    EXPECT_EQ(result.exit_code, 4) << command << "\n" << result.text;
    EXPECT_THAT(result.text, ::testing::Not(HasSubstr("Traceback"))) << command;
  }
}

TEST_F(Peers, SizesThatDoNotRiseAreNotCountedForEver) {
  if (!there("mpirun.openmpi")) GTEST_SKIP() << "missing capability: Open MPI";
  for (const std::string sizes : {"0:8M:4", "8:64:1", "64:8:2", "8:64:x"}) {
    const Output result =
        run("timeout 60 " WEFT_SOURCE_DIR "/tests/peers/softroce_ratios true /bin/true 2 1 2 1 " +
            sizes);
    if (result.exit_code == 3) GTEST_SKIP() << result.text;
    EXPECT_EQ(result.exit_code, 4) << sizes << "\n" << result.text;
    EXPECT_THAT(result.text, HasSubstr("SIZES " + sizes));
  }
}

TEST_F(Peers, AReportThatCannotBeWrittenIsAnErrorAndNoVerdict) {
  for (const std::string& bench :
       {kPeers + " -N 2 --sizes 8 --collectives all_reduce --only weft_malloc" + stand_in("0"),
        kChoice + " -N 2 --layouts '' -e 8 --budget-ms 1"}) {
    const Output result = run(bench + " --rounds 1 --json /dev/full");
    EXPECT_EQ(result.exit_code, 4) << result.text;
    EXPECT_THAT(result.text, HasSubstr("--json /dev/full: cannot be written"));
    EXPECT_THAT(result.text, ::testing::Not(HasSubstr("Traceback")));
  }
}

// A killed `weft lab` leaves its lab behind; on SIGTERM it removes the lab.
TEST_F(Peers, ARunWhoseTimeIsUpIsAskedToEnd) {
  std::ofstream(file("weft")) << "#!/bin/bash\ntrap 'touch " << file("asked")
                              << "; exit 0' TERM\nwhile :; do sleep 0.05; done\n";
  fs::permissions(file("weft"), fs::perms::owner_all);
  const Output result = run(kChoice + " -N 2 --layouts '' --limit-s 3 --weft " + file("weft"));
  EXPECT_EQ(result.exit_code, 4) << result.text;
  EXPECT_THAT(result.text, HasSubstr("the time is up"));
  EXPECT_TRUE(fs::exists(file("asked")));
}

TEST_F(Peers, AWrongResultIsNoTime) {
  const Output result =
      bench("--only weft_malloc -N 2 --sizes 8 --collectives all_reduce" + stand_in("5 5 5"));
  EXPECT_EQ(result.exit_code, 3) << result.text;
  EXPECT_THAT(result.text, HasSubstr("5 wrong elements"));
}

// Earlier rounds do not count towards the target.
TEST_F(Peers, WhoIsWrongOnceHasNoTimeAtAll) {
  const Output result =
      bench("--only weft_malloc -N 2 --sizes 8 --collectives all_reduce" + stand_in("0 0 5"));
  EXPECT_EQ(result.exit_code, 3) << result.text;
  const nlohmann::json json = report();
  EXPECT_TRUE(json["rows"][0]["contenders"]["weft_malloc"]["time_us"].is_null()) << json;
  EXPECT_THAT(result.text, ::testing::Not(HasSubstr("20.00")));
}

TEST_F(Peers, WhatARunThatIsGivenUpHasStartedEndsToo) {
  std::ofstream(file("weft")) << "#!/bin/bash\nsleep 1000 >/dev/null 2>&1 &\necho $! >"
                              << file("pid") << "\ntrap '' TERM\nwait\n";
  fs::permissions(file("weft"), fs::perms::owner_all);
  const Output result = bench("--only weft_malloc -N 2 --sizes 8 --collectives all_reduce" +
                              (" --limit-s 1 --weft " + file("weft")));
  EXPECT_THAT(result.text, HasSubstr("no end within 1.0 s"));
  EXPECT_NE(run("kill -0 $(cat " + file("pid") + ")").exit_code, 0);
}

TEST_F(Peers, RefusesWhatMakesNoSense) {
  EXPECT_NE(bench("--collectives all_reduced").exit_code, 0);
  EXPECT_THAT(bench("--sizes 12x").text, HasSubstr("size 12x"));
  EXPECT_THAT(bench("--scenario netlab --layouts 4x2").text, HasSubstr("layout 4x2"));
  EXPECT_THAT(bench("--only nobody").text, HasSubstr("openmpi_ring256k"));
}

TEST_F(Peers, OpenMpiIsBuiltRunAndChecked) {
  if (!there("mpicxx.openmpi")) GTEST_SKIP() << "missing capability: Open MPI";
  const Output result =
      bench("--peers-only --only openmpi -N 2 --sizes 64K --scale 0.01 --budget-s 0.1");
  EXPECT_EQ(result.exit_code, 0) << result.text;
  const nlohmann::json json = report();
  ASSERT_EQ(json["rows"].size(), 4U) << "one for each collective";
  for (const auto& row : json["rows"]) {
    EXPECT_GT(row["contenders"]["openmpi"]["time_us"].get<double>(), 0) << row;
  }
}

TEST_F(Peers, AProgramOfMpiWithWeftInFrontIsJudgedBesidePlainMpi) {
  if (!there("mpicxx.openmpi") ||
      !fs::exists(fs::path(WEFT_BINARY).parent_path() / "mpi/openmpi/libweft_mpi.so"))
    GTEST_SKIP() << "missing capability: Open MPI";
  const Output result = bench(
      "--only openmpi,weft_mpi -N 2 --sizes 8 --collectives all_reduce --scale 0.01 --budget-s "
      "0.1");
  EXPECT_THAT(result.text, HasSubstr("all_reduce, 2 ranks, mpi memory, 8 B")) << "PASS or MISS";
  EXPECT_THAT(result.text, HasSubstr("0 not measured"));
  const nlohmann::json json = report();
  for (const auto& contender : json["rows"][0]["contenders"])
    EXPECT_GT(contender["time_us"].get<double>(), 0) << json;
}

TEST_F(Peers, GlooIsBuiltRunAndChecked) {
  if (!fs::exists("/usr/include/gloo/context.h")) GTEST_SKIP() << "missing capability: Gloo";
  const Output result = bench(
      "--peers-only --only gloo,gloo_ring_chunked -N 2 --sizes 64K --scale 0.01 --budget-s 0.1");
  EXPECT_EQ(result.exit_code, 0) << result.text;
  const nlohmann::json json = report();
  ASSERT_EQ(json["rows"].size(), 4U) << "one for each collective";
  for (const auto& row : json["rows"]) {
    for (const auto& gloo : row["contenders"]) EXPECT_GT(gloo["time_us"].get<double>(), 0) << row;
  }
}

}  // namespace
