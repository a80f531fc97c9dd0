// job_from_environment(): the variables of every launcher, and errors for invalid ones.
#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdlib>
#include <set>

#include "tests/transport/rendezvous_helpers.h"
#include "transport/job/job_environment.h"

namespace weft {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

class Environment : public ::testing::Test {
 protected:
  static constexpr const char* kAll[] = {
      "WEFT_RANK",       "WEFT_SIZE",          "WEFT_ROOT",      "WEFT_ROOT_FD",
      "WEFT_SECRET",     "PMIX_RANK",          "PMIX_NAMESPACE", "RANK",
      "WORLD_SIZE",      "LOCAL_RANK",         "MASTER_ADDR",    "MASTER_PORT",
      "WEFT_TIMEOUT_MS", "TORCHELASTIC_RUN_ID"};
  Environment() {
    for (const char* name : kAll) unsetenv(name);
  }
  ~Environment() override {
    for (const char* name : kAll) unsetenv(name);
  }
  static void set(const char* name, const std::string& value) { setenv(name, value.c_str(), 1); }
  static void weft(const std::string& rank, const std::string& size) {
    set("WEFT_RANK", rank), set("WEFT_SIZE", size);
    set("WEFT_ROOT", "10.0.0.1:4711"), set("WEFT_SECRET", "s");
  }
  static std::string error() { return test::error_of(job_from_environment); }
};

TEST_F(Environment, EmptyIsAJobOfOne) {
  const JobSpec spec = job_from_environment();
  EXPECT_EQ(spec.rank, 0);
  EXPECT_EQ(spec.size, 1);
  EXPECT_EQ(spec.launcher, "none");
  EXPECT_EQ(connect(spec)->all_gather("me"), std::vector<std::string>{"me"});
}

TEST_F(Environment, WeftVariables) {
  weft("3", "8");
  set("WEFT_TIMEOUT_MS", "1500");
  const JobSpec spec = job_from_environment();
  EXPECT_EQ(spec.launcher, "weft");
  EXPECT_EQ(spec.rank, 3);
  EXPECT_EQ(spec.size, 8);
  EXPECT_EQ(spec.address, "10.0.0.1");
  EXPECT_EQ(spec.ports, std::vector<std::uint16_t>{4711});
  EXPECT_EQ(spec.secret, "s");
  EXPECT_EQ(spec.timeout, std::chrono::milliseconds(1500));
  EXPECT_EQ(spec.listen_fd, -1);
  set("WEFT_ROOT", "[fe80::1]:99");
  EXPECT_EQ(job_from_environment().address, "fe80::1");
}

TEST_F(Environment, MalformedValuesAreNamed) {
  for (const char* rank : {"", "x", "-1", "8", "3x", " 3", "99999999999999999999"}) {
    weft(rank, "8");
    EXPECT_THAT(error(), AllOf(HasSubstr("WEFT_RANK"), HasSubstr('"' + std::string(rank) + '"'),
                               HasSubstr("0 to 7")));
  }
  weft("0", "0");
  EXPECT_THAT(error(), HasSubstr("WEFT_SIZE is \"0\""));
  for (const char* root :
       {"", "host", ":80", "[]:80", "host:", "host:0", "host:65536", "host:http", "::1:80"}) {
    weft("1", "2");
    set("WEFT_ROOT", root);
    EXPECT_THAT(error(), HasSubstr("WEFT_ROOT")) << root;
  }
  weft("1", "2");
  set("WEFT_TIMEOUT_MS", "soon");
  EXPECT_THAT(error(), HasSubstr("WEFT_TIMEOUT_MS is \"soon\""));
}

TEST_F(Environment, MissingValuesAreNamed) {
  set("WEFT_SIZE", "4");
  EXPECT_THAT(error(), HasSubstr("WEFT_RANK is not"));
  weft("1", "4");
  unsetenv("WEFT_SIZE");
  EXPECT_THAT(error(), HasSubstr("WEFT_SIZE is not set"));
  weft("1", "4");
  unsetenv("WEFT_ROOT");
  EXPECT_THAT(error(), HasSubstr("WEFT_ROOT is not"));
  weft("1", "4");
  unsetenv("WEFT_SECRET");
  EXPECT_THAT(error(), HasSubstr("WEFT_SECRET is not"));
}

TEST_F(Environment, InheritedSocketMustListen) {
  weft("0", "2");
  const int file = dup(STDIN_FILENO);
  set("WEFT_ROOT_FD", std::to_string(file));
  EXPECT_THAT(error(), HasSubstr("is not a listening socket"));
  close(file);
  EXPECT_THAT(error(), HasSubstr("closed"));
  test::Specs setup(2);
  // A descriptor number that no earlier test's job used.
  const int listener = fcntl(setup[0].listen_fd, F_DUPFD_CLOEXEC, 500);
  close(setup[0].listen_fd);
  set("WEFT_ROOT_FD", std::to_string(listener));
  EXPECT_EQ(job_from_environment().listen_fd, listener);
  EXPECT_EQ(job_from_environment().listen_fd, listener) << "asking twice changes nothing";
  set("WEFT_RANK", "1");
  EXPECT_EQ(job_from_environment().listen_fd, -1) << "only rank 0 listens";
  close(listener);
}

TEST_F(Environment, Torchrun) {
  set("RANK", "5"), set("WORLD_SIZE", "16"), set("LOCAL_RANK", "1");
  EXPECT_THAT(error(), HasSubstr("MASTER_ADDR"));
  set("MASTER_ADDR", "node0");
  EXPECT_THAT(error(), HasSubstr("MASTER_PORT is not set"));
  set("MASTER_PORT", "29500"), set("TORCHELASTIC_RUN_ID", "run7");
  ::testing::internal::CaptureStderr();
  const JobSpec spec = job_from_environment();
  EXPECT_EQ(::testing::internal::GetCapturedStderr(), "") << "rank 0 says it";
  EXPECT_EQ(spec.launcher, "torchrun");
  EXPECT_EQ(spec.rank, 5);
  EXPECT_EQ(spec.size, 16);
  EXPECT_EQ(spec.address, "node0");
  EXPECT_EQ(spec.ports, torchrun_ports(29500, "run7"));
  EXPECT_FALSE(spec.secret.empty());
  const std::string derived = spec.secret;
  EXPECT_EQ(job_from_environment().secret, derived);
  set("TORCHELASTIC_RUN_ID", "run8");
  EXPECT_NE(job_from_environment().secret, derived);
  set("RANK", "0");
  ::testing::internal::CaptureStderr();
  (void)job_from_environment();
  EXPECT_THAT(
      ::testing::internal::GetCapturedStderr(),
      AllOf(HasSubstr("this job is unprotected"), HasSubstr("run8"), HasSubstr("WEFT_SECRET")));
  set("WEFT_SECRET", "given");
  ::testing::internal::CaptureStderr();
  EXPECT_EQ(job_from_environment().secret, "given");
  EXPECT_EQ(::testing::internal::GetCapturedStderr(), "");
  set("RANK", "16");
  EXPECT_THAT(error(), HasSubstr("RANK is \"16\""));
}

TEST_F(Environment, TorchrunPortsAreDifferentAndNotTheMasters) {
  for (const int master : {1, 10000, 20000, 29500, 32767, 65535}) {
    const auto ports = torchrun_ports(static_cast<std::uint16_t>(master), "id");
    const std::set<std::uint16_t> unique(ports.begin(), ports.end());
    EXPECT_EQ(unique.size(), 8U);
    EXPECT_FALSE(unique.contains(static_cast<std::uint16_t>(master)));
    EXPECT_GE(*unique.begin(), 10000);
    EXPECT_LT(*unique.rbegin(), 32768);
  }
  EXPECT_NE(torchrun_ports(29500, "a"), torchrun_ports(29500, "b"));
}

TEST_F(Environment, WeftComesBeforeTorchrun) {
  set("RANK", "1"), set("WORLD_SIZE", "2");
  weft("3", "8");
  EXPECT_EQ(job_from_environment().launcher, "weft");
}

TEST_F(Environment, ConnectChecksWhatItIsGiven) {
  const auto error_of = [](const JobSpec& spec) {
    return test::error_of([&] { return connect(spec); });
  };
  JobSpec spec = test::Specs(2)[1];
  spec.rank = 2;
  EXPECT_THAT(error_of(spec), HasSubstr("rank 2 of 2"));
  spec = test::Specs(2)[1];
  spec.secret.clear();
  EXPECT_THAT(error_of(spec), HasSubstr("WEFT_SECRET"));
  spec = test::Specs(2)[1];
  spec.address.clear();
  EXPECT_THAT(error_of(spec), HasSubstr("WEFT_ROOT"));
  spec = test::Specs(2)[1];
  spec.timeout = {};
  EXPECT_THAT(error_of(spec), HasSubstr("timeout"));
}

}  // namespace
}  // namespace weft
