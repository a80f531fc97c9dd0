// PMIx: this program runs itself under mpirun, where each copy is a rank.
// labels: multiproc
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <string>

#include "transport/job/bootstrap.h"

namespace weft {
namespace {

// Body of each process under mpirun. Returns its exit code, 0 on success.
int be_a_rank() {
  try {
    const JobSpec first = job_from_environment();
    const JobSpec spec = job_from_environment();  // a second call must not hang in a second fence
    if (spec.launcher != "pmix" || first.listen_fd != spec.listen_fd) return 1;
    for (int i = 0; i < 2; ++i) {  // nor must a second job
      const auto job = connect(job_from_environment());
      const auto all = job->all_gather(fmt::format("r{}", job->rank()));
      std::string text;
      for (const std::string& part : all) text += part;
      if (job->rank() == 0) std::printf("gathered %s\n", text.c_str());
      job->leave();
    }
    return 0;
  } catch (const Error& e) {
    std::fprintf(stderr, "%s\n", e.what());
    return 2;
  }
}

[[maybe_unused]] const bool kNotARank = [] {
  if (std::getenv("WEFT_TEST_PMIX") != nullptr) std::exit(be_a_rank());
  return true;
}();

class Pmix : public ::testing::Test {
 protected:
  void SetUp() override {
#if !WEFT_HAVE_PMIX
    GTEST_SKIP() << "missing capability: PMIx (this build has none)";
#endif
    ASSERT_GT(readlink("/proc/self/exe", self_, sizeof self_ - 1), 0);
  }
  static std::string output_of(const std::string& command, int& code) {
    // libpmix leaks a few bytes at start, which ASan would report.
    FILE* const pipe = popen(("ASAN_OPTIONS=detect_leaks=0 " + command).c_str(), "r");
    std::string text;
    char bytes[4096];
    std::size_t n = 0;
    while ((n = fread(bytes, 1, sizeof bytes, pipe)) > 0) text.append(bytes, n);
    const int status = pclose(pipe);
    code = WIFEXITED(status) ? WEXITSTATUS(status) : -1;
    return text;
  }

  char self_[4096] = "";
};

TEST_F(Pmix, MpirunStartsAJob) {
  int code = 0;
  const std::string version = output_of("mpirun --version 2>&1", code);
  if (code != 0 || version.find("Open MPI") == std::string::npos) {
    GTEST_SKIP() << "missing capability: mpirun";
  }
  const std::string text = output_of(
      fmt::format("WEFT_TEST_PMIX=1 timeout 120 mpirun --allow-run-as-root --oversubscribe -n 4 "
                  "'{}' 2>&1",
                  self_),
      code);
  EXPECT_EQ(code, 0) << text;
  const std::string gathered = "gathered r0r1r2r3\n";
  const std::size_t one = text.find(gathered);
  ASSERT_NE(one, std::string::npos) << text;
  EXPECT_NE(text.find(gathered, one + 1), std::string::npos) << text;
}

TEST_F(Pmix, WithoutAServerItSaysWhatToDo) {
  int code = 0;
  const std::string text = output_of(
      fmt::format("PMIX_RANK=0 PMIX_NAMESPACE=none WEFT_TEST_PMIX=1 '{}' 2>&1", self_), code);
  EXPECT_EQ(code, 2) << text;
  EXPECT_THAT(text, ::testing::HasSubstr("PMIx: PMIx_Init failed"));
  EXPECT_THAT(text, ::testing::HasSubstr("mpirun"));
}

}  // namespace
}  // namespace weft
