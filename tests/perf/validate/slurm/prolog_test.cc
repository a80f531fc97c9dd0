// The prolog on a job of several nodes, with a Slurm and a weft that only record their calls.
// labels: multiproc
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>

#include "support/process/shell.h"

namespace weft {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;
using ::testing::Not;

class Prolog : public ::testing::Test {
 protected:
  void SetUp() override {
    folder_ = fs::temp_directory_path() / ("prolog_test_" + std::to_string(getpid()));
    fs::create_directories(folder_);
    program(
        "weft",
        R"(echo "rank $WEFT_RANK of $WEFT_SIZE at $WEFT_HOST_ID root ${WEFT_ROOT-none} secret ${WEFT_SECRET-none}" >>"$0.said"
while [ "$1" != --json ]; do shift; done
[ "$WEFT_RANK" != 0 ] || echo '{}' >"$2"
while [ "$1" != --drains ]; do shift; done
cat "$0.drains" >"$2"
exit $(cat "$0.code"))");
    program("scontrol", R"(case "$*" in
  "show hostnames n[1-3]") printf 'n1\nn2\nn3\n' ;;
  *) echo "$*" >>"$0.said" ;;
esac)");
    write("settings", "WEFT=" + path("weft") + "\nWEFT_SECRET_FILE=" + path("secret") +
                          "\nWEFT_LOG=" + path("log") + "\n");
    write("secret", "something\n");
    write("weft.drains", "n3 weft: h3 sends slowly\nn9 weft: of another job\n");
  }
  void TearDown() override { fs::remove_all(folder_); }

  std::string path(const std::string& name) const { return (folder_ / name).string(); }
  void write(const std::string& name, const std::string& text) const {
    std::ofstream(path(name)) << text;
  }
  std::string said(const std::string& program) const {
    std::ostringstream text;
    text << std::ifstream(path(program + ".said")).rdbuf();
    return text.str();
  }
  int prolog(const std::string& node, int code) const {
    write("weft.code", std::to_string(code));
    return run("PATH=" + folder_.string() + ":$PATH SLURM_JOB_ID=5 SLURMD_NODENAME=" + node +
               " SLURM_JOB_NODELIST='n[1-3]' WEFT_SLURM_SETTINGS=" + path("settings") + " " +
               WEFT_SOURCE_DIR "/perf/validate/slurm/prolog")
        .exit_code;
  }

 private:
  void program(const std::string& name, const std::string& text) const {
    write(name, "#!/bin/bash\n" + text + "\n");
    fs::permissions(path(name), fs::perms::owner_all);
  }
  fs::path folder_;
};

TEST_F(Prolog, NodesOfAJobAreRanksThatShareASecret) {
  EXPECT_EQ(prolog("n1", 0), 0);
  EXPECT_EQ(prolog("n2", 0), 0);
  std::istringstream lines(said("weft"));
  std::string first, second;
  std::getline(lines, first);
  std::getline(lines, second);
  EXPECT_THAT(first, HasSubstr("rank 0 of 3 at n1 root n1:7205 secret "));
  EXPECT_THAT(second, HasSubstr("rank 1 of 3 at n2 root n1:7205 secret "));
  const std::string secret = first.substr(first.rfind(' '));
  EXPECT_EQ(secret.size(), 33);
  EXPECT_THAT(second, HasSubstr(secret));
  EXPECT_THAT(secret, Not(HasSubstr("something")));
}

TEST_F(Prolog, WithoutASecretEachNodeIsTestedAlone) {
  fs::remove(path("secret"));
  EXPECT_EQ(prolog("n2", 3), 0);
  EXPECT_THAT(said("weft"), HasSubstr("rank 0 of 1 at n2 root none secret none"));
}

// No node queries slurmctld, and a healthy one sends it nothing.
TEST_F(Prolog, TheFaultyNodeAloneDrainsItselfAndFails) {
  EXPECT_EQ(prolog("n1", 2), 0) << "a sound node that fails would be drained";
  EXPECT_EQ(prolog("n2", 2), 0);
  EXPECT_EQ(said("scontrol"), "");
  EXPECT_TRUE(fs::exists(path("log/job-5.json")));
  EXPECT_EQ(prolog("n3", 2), 1);
  EXPECT_EQ(said("scontrol"), "update NodeName=n3 State=DRAIN Reason=weft: h3 sends slowly\n");
}

TEST_F(Prolog, OtherExitCodesDrainNothing) {
  for (const int code : {0, 1, 3, 4, 124, 137}) EXPECT_EQ(prolog("n1", code), 0) << code;
  EXPECT_EQ(said("scontrol"), "");
}

}  // namespace
}  // namespace weft
