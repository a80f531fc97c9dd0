// Jobs for which the kernel refuses shared memory: in sandboxes, in user namespaces, of unreadable
// programs. They use tcp, or name the refused call.
// labels: multiproc
// sanitize: long
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <filesystem>
#include <string>

#include "support/process/sandbox.h"
#include "support/process/temporary_folder.h"

namespace weft {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;
using testing::refuse_call;
using testing::run_prepared;

constexpr char kPerf[] = "perf all_reduce -b 8 -e 64K -f 8 -n 3 --timeout-ms 30000";

struct RefusedCall {
  long number;
  const char* name;
};
void PrintTo(const RefusedCall& call, std::ostream* out) { *out << call.name; }

class Sandbox : public ::testing::TestWithParam<RefusedCall> {};

TEST_P(Sandbox, ThatRefusesACallIsGotAround) {
  for (const int error : {EPERM, ENOSYS}) {
    const Output o =
        run_prepared([&] { return refuse_call(GetParam().number, error); },
                     fmt::format("timeout 100 {} {} -N 3 --buffers weft", WEFT_BINARY, kPerf));
    if (o.exit_code == 77) GTEST_SKIP() << "missing capability: seccomp filters";
    EXPECT_EQ(o.exit_code, 0) << error << '\n' << o.text;
    EXPECT_THAT(o.text, Not(HasSubstr("WRONG"))) << o.text;
  }
}

INSTANTIATE_TEST_SUITE_P(Calls, Sandbox,
                         ::testing::Values(RefusedCall{SYS_memfd_create, "memfd_create"},
                                           RefusedCall{SYS_process_vm_readv, "process_vm_readv"},
                                           RefusedCall{SYS_close_range, "close_range"},
                                           RefusedCall{SYS_pidfd_open, "pidfd_open"},
                                           RefusedCall{SYS_sched_setaffinity, "sched_setaffinity"},
                                           RefusedCall{SYS_sched_getaffinity, "sched_getaffinity"},
                                           RefusedCall{SYS_sched_setattr, "sched_setattr"},
                                           RefusedCall{SYS_madvise, "madvise"},
                                           RefusedCall{SYS_mbind, "mbind"},
                                           RefusedCall{SYS_get_mempolicy, "get_mempolicy"},
                                           RefusedCall{SYS_setpriority, "setpriority"},
                                           RefusedCall{SYS_perf_event_open, "perf_event_open"},
                                           RefusedCall{SYS_membarrier, "membarrier"},
                                           RefusedCall{SYS_io_uring_setup, "io_uring_setup"}),
                         [](const auto& info) { return std::string(info.param.name); });

TEST(SandboxNamed, ACallThatNothingReplaces) {
  const Output o = run_prepared([] { return refuse_call(SYS_signalfd4, EPERM); },
                                fmt::format("timeout 100 {} {} -N 2", WEFT_BINARY, kPerf));
  if (o.exit_code == 77) GTEST_SKIP() << "missing capability: seccomp filters";
  EXPECT_EQ(o.exit_code, 4) << o.text;
  EXPECT_THAT(o.text, HasSubstr("signalfd failed: Operation not permitted"));
}

TEST(SandboxNamed, TransportShmThatCannotBe) {
  const Output o =
      run_prepared([] { return refuse_call(SYS_memfd_create, ENOSYS); },
                   fmt::format("timeout 100 {} {} -N 2 --transport shm", WEFT_BINARY, kPerf));
  if (o.exit_code == 77) GTEST_SKIP() << "missing capability: seccomp filters";
  EXPECT_EQ(o.exit_code, 4) << o.text;
  EXPECT_THAT(o.text, HasSubstr("memfd_create: Function not implemented; --transport auto"));
}

// Rootless containers of one machine, one user and one pid namespace: each has a user namespace.
TEST(UserNamespaces, OfARankEachShareNoMemory) {
  if (run("unshare -U -r true").exit_code != 0)
    GTEST_SKIP() << "missing capability: user namespaces";
  for (const char* who : {"-ge 0", "= 1"}) {
    const Output o = run(fmt::format(
        "timeout 100 {0} launch -N 3 -- sh -c 'test $WEFT_RANK {1} && exec unshare -U -r {0} {2}; "
        "exec {0} {2}'",
        WEFT_BINARY, who, kPerf));
    EXPECT_EQ(o.exit_code, 0) << o.text;
    EXPECT_THAT(o.text, Not(HasSubstr("WRONG"))) << o.text;
  }
}

// The kernel denies access to a process whose program file its user cannot read.
TEST(UnreadableProgram, GoesByTcp) {
  if (geteuid() != 0) GTEST_SKIP() << "missing capability: root";
  const testing::TemporaryFolder folder;
  const std::string program = folder / "weft";
  std::filesystem::copy_file(WEFT_BINARY, program);
  ASSERT_EQ(chmod(program.c_str(), 0111), 0);
  ASSERT_EQ(chmod(folder.path().c_str(), 0755), 0);
  const Output o = run_prepared([] { return setgid(65534) == 0 && setuid(65534) == 0; },
                                fmt::format("cd /; timeout 100 {} {} -N 2", program, kPerf));
  EXPECT_EQ(o.exit_code, 0) << o.text;
}

}  // namespace
}  // namespace weft
