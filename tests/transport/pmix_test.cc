// PMIx: this program runs itself under mpirun, where each copy is a rank.
// labels: multiproc
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <string>

#include "transport/rendezvous.h"

namespace weft {
namespace {

std::string output_of(const std::string& command, int& code) {
  FILE* const pipe = popen(command.c_str(), "r");
  std::string text;
  char bytes[4096];
  std::size_t n = 0;
  while ((n = fread(bytes, 1, sizeof bytes, pipe)) > 0) text.append(bytes, n);
  const int status = pclose(pipe);
  code = WIFEXITED(status) ? WEXITSTATUS(status) : -1;
  return text;
}

// A rank of the job below.
TEST(PmixRank, Connects) {
  if (std::getenv("WEFT_TEST_PMIX") == nullptr)
    GTEST_SKIP() << "missing capability: being run by mpirun";
  const JobSpec first = job_from_environment();
  const JobSpec spec = job_from_environment();  // asking twice must not hang in a second fence
  ASSERT_EQ(spec.launcher, "pmix");
  ASSERT_EQ(first.listen_fd, spec.listen_fd);
  for (int i = 0; i < 2; ++i) {  // and so must a second job
    const auto job = connect(job_from_environment());
    const auto all = job->all_gather("r" + std::to_string(job->rank()));
    std::string text;
    for (const std::string& part : all) text += part;
    if (job->rank() == 0) std::printf("gathered %s\n", text.c_str());
    job->leave();
  }
}

class Pmix : public testing::Test {
 protected:
  void SetUp() override {
#if !WEFT_HAVE_PMIX
    GTEST_SKIP() << "missing capability: PMIx (this build has none)";
#endif
    int code = 0;
    (void)output_of("command -v mpirun", code);
    if (code != 0) GTEST_SKIP() << "missing capability: mpirun";
    const std::string version = output_of("mpirun --version", code);
    if (version.find("Open MPI") == std::string::npos &&
        version.find("prte") == std::string::npos) {
      GTEST_SKIP() << "missing capability: mpirun of Open MPI";
    }
  }
  static std::string mpirun(int ranks, const std::string& options, int& code) {
    char self[4096] = "";
    if (readlink("/proc/self/exe", self, sizeof self - 1) <= 0) std::abort();
    return output_of(
        "unset WEFT_RANK; WEFT_TEST_PMIX=1 timeout 120 mpirun --allow-run-as-root --oversubscribe "
        "-n " +
            std::to_string(ranks) + " " + options + " '" + self +
            "' --gtest_filter=PmixRank.Connects 2>&1",
        code);
  }
};

TEST_F(Pmix, MpirunStartsAJob) {
  int code = -1;
  const std::string text = mpirun(4, "", code);
  EXPECT_EQ(code, 0) << text;
  const std::string gathered = "gathered r0r1r2r3\n";
  const std::size_t one = text.find(gathered);
  ASSERT_NE(one, std::string::npos) << text;
  EXPECT_NE(text.find(gathered, one + 1), std::string::npos) << text;
}

TEST_F(Pmix, WithoutAServerItSaysWhatToDo) {
  int code = -1;
  char self[4096] = "";
  ASSERT_GT(readlink("/proc/self/exe", self, sizeof self - 1), 0);
  const std::string text =
      output_of(std::string("PMIX_RANK=0 PMIX_NAMESPACE=none WEFT_TEST_PMIX=1 '") + self +
                    "' --gtest_filter=PmixRank.Connects 2>&1",
                code);
  EXPECT_NE(code, 0);
  EXPECT_THAT(text, testing::HasSubstr("PMIx"));
  EXPECT_THAT(text, testing::HasSubstr("mpirun"));
}

}  // namespace
}  // namespace weft
