// A forked child's use of inherited Worlds, Communicators and Handles does not affect the parent.
// labels: multiproc
// ctest: whole
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <memory>
#include <thread>
#include <vector>

#include "coll/api/communicator.h"
#include "support/jobs/processes.h"
#include "support/jobs/ranks.h"
#include "support/jobs/setting.h"
#include "transport/ucx/ucx.h"

namespace weft {
namespace {

using std::chrono::milliseconds;
using testing::Processes;
using testing::Setting;

constexpr int kRounds = 6, kGood = 7;
constexpr std::size_t kForkCount = 2000000;

struct ForkCase {
  Setting setting;
  bool progress_thread;
};
void PrintTo(const ForkCase& c, std::ostream* os) { PrintTo(c.setting, os); }

class Fork : public ::testing::TestWithParam<ForkCase> {};

// The destructors that a child runs when it leaves main(), or for its static objects.
[[noreturn]] void end_child(Request handle, Communicator comm, std::unique_ptr<World> world) {
  const bool over = handle.test();
  const Code code = handle.wait().code();
  {
    const Request ended = std::move(handle);
    comm = {};
    world.reset();
  }
  _exit(over && code == Code::kAborted ? kGood : 1);
}

bool ends_well(pid_t child) {
  int status = 0;
  const bool ended = Processes::wait_until(
      milliseconds(20000), [&] { return waitpid(child, &status, WNOHANG) == child; });
  if (!ended) {
    kill(child, SIGKILL);
    waitpid(child, &status, 0);
  }
  return ended && WIFEXITED(status) && WEXITSTATUS(status) == kGood;
}

TEST_P(Fork, AChildMayEndWhatItsParentWorksWith) {
  const Setting& s = GetParam().setting;
  if (needs_ucx(s) && !ucx_available()) GTEST_SKIP() << "missing capability: UCX";
  const int n = testing::ranks_of(s);
  Processes processes(n, milliseconds(20000), [&](const JobSpec& spec) {
    WorldOptions options;
    options.transport = s.transport;
    options.progress_thread = GetParam().progress_thread;
    std::vector<std::int32_t> in(kForkCount, 1), out(kForkCount);
    auto world = std::make_unique<World>(
        connect(spec), testing::places(s.hosts)[static_cast<std::size_t>(spec.rank)], options);
    Communicator comm = world->world().duplicate();
    for (int round = 0; round < kRounds; ++round) {
      out.assign(kForkCount, -1);
      Request handle =
          comm.all_reduce_async(in.data(), out.data(), kForkCount, DType::kInt32, RedOp::kSum);
      const pid_t child = fork();
      if (child == 0) end_child(std::move(handle), std::move(comm), std::move(world));
      if (round % 2 == 0 && !ends_well(child)) return 2;
      if (!handle.wait().ok() || out != std::vector<std::int32_t>(kForkCount, n)) return 3;
      if (round % 2 == 1 && !ends_well(child)) return 2;
    }
    return 0;
  });
  EXPECT_TRUE(processes.wait(milliseconds(120000))) << "a rank hangs";
  for (Rank r = 0; r < n; ++r)
    EXPECT_EQ(processes.code(r), 0) << "rank " << r << "; 2: its child, 3: its results";
}

INSTANTIATE_TEST_SUITE_P(Settings, Fork,
                         ::testing::Values(ForkCase{{"shm2", {2}, "auto"}, false},
                                           ForkCase{{"shm2_progress", {2}, "auto"}, true},
                                           ForkCase{{"tcp2", {1, 1}, "tcp"}, false},
                                           ForkCase{{"ucx2", {1, 1}, "ucx"}, false}),
                         [](const auto& info) { return std::string(info.param.setting.name); });

}  // namespace
}  // namespace weft
