// weft's UCX settings: UCX has settings of these names, they take effect on the sockets, and they
// serve their purpose.
// labels: multiproc
#include <fmt/format.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>

#include <filesystem>
#include <fstream>
#include <sstream>

#include "support/process/signals.h"
#include "support/process/temporary_folder.h"
#include "transport/rail_ranks.h"
#include "transport/ucx/config.h"

namespace weft::testing {
namespace {

using std::chrono::milliseconds;

int option(int fd, int level, int name) {
  int value = -1;
  socklen_t length = sizeof value;
  return getsockopt(fd, level, name, &value, &length) == 0 ? value : -1;
}

// Open sockets with keepalive.
std::vector<int> kept_alive() {
  std::vector<int> fds;
  for (const auto& entry : std::filesystem::directory_iterator("/proc/self/fd")) {
    const int fd = std::stoi(entry.path().filename());
    if (option(fd, SOL_SOCKET, SO_KEEPALIVE) == 1) fds.push_back(fd);
  }
  return fds;
}

// UCX accepts any name, and only logs that it is unused.
TEST(UcxConfig, UcxKnowsEverySetting) {
  const std::string path = ::testing::TempDir() + fmt::format("/weft_ucx_log.{}", getpid());
  run_ranks(1, [&](SharedBoard& board, Rank me) {
    setenv("UCX_LOG_LEVEL", "warn", 1);  // overrides weft's "fatal"
    std::FILE* log = std::fopen(path.c_str(), "w");
    ASSERT_NE(log, nullptr);
    const int out = dup(1);
    dup2(fileno(log), 1);
    { RailEnd end(board, me, "ucx"); }
    std::fflush(nullptr);
    dup2(out, 1);
  });
  std::stringstream said;
  said << std::ifstream(path).rdbuf();
  EXPECT_EQ(said.str().find("invalid configuration"), std::string::npos) << said.str();
  std::filesystem::remove(path);
}

TEST(UcxConfig, ADeviceHasAllItsActivePorts) {
  if (std::getenv("UCX_NET_DEVICES")) GTEST_SKIP() << "UCX_NET_DEVICES of the environment wins";
  const TemporaryFolder root;
  const auto port = [&](const char* device, const char* number, const char* state) {
    const std::filesystem::path folder =
        std::filesystem::path(root.path()) / "class/infiniband" / device / "ports" / number;
    std::filesystem::create_directories(folder);
    std::ofstream(folder / "state") << state << "\n";
  };
  port("mlx5_0", "1", "4: ACTIVE");
  port("mlx5_0", "2", "4: ACTIVE");
  port("mlx5_1", "1", "1: DOWN");
  port("mlx5_1", "2", "4: ACTIVE");
  port("mlx5_2", "1", "1: DOWN");
  Nic nic;
  nic.rdma = true;
  nic.netdev = "ib0";
  const auto device = [&](const char* name) {
    nic.name = name;
    return ucx_device(nic, root.path());
  };
  EXPECT_EQ(device("mlx5_0"), "mlx5_0:1,mlx5_0:2");
  EXPECT_EQ(device("mlx5_1"), "mlx5_1:2");
  EXPECT_EQ(device("mlx5_2"), "mlx5_2:1") << "for UCX to say what is wrong with it";
  EXPECT_EQ(device("mlx5_0:1"), "mlx5_0:1");
  nic.rdma = false;
  EXPECT_EQ(device("mlx5_0"), "ib0");
}

TEST(UcxConfig, SettingsReachTheSockets) {
  for (const char* name : {"KEEPIDLE", "KEEPINTVL", "KEEPCNT", "SNDBUF"})
    if (std::getenv(fmt::format("UCX_TCP_{}", name).c_str()))
      GTEST_SKIP() << "UCX_TCP_" << name << " of the environment wins";
  int allowed = 0;
  if (!(std::ifstream("/proc/sys/net/core/wmem_max") >> allowed)) allowed = 0;
  run_ranks(2, [&](SharedBoard& board, Rank me) {
    RailEnd end(board, me, "ucx");
    const auto before = kept_alive();
    char in = 0, out = 'x';
    end.recv(1 - me, 1, &in, 1, 1);
    const auto after = kept_alive();  // not polled yet: no duplicate connection is closed
    EXPECT_GT(after.size(), before.size()) << "the connection is not kept alive";
    for (const int fd : after) {
      if (std::find(before.begin(), before.end(), fd) != before.end()) continue;
      EXPECT_LE(option(fd, IPPROTO_TCP, TCP_KEEPIDLE), 3);  // UCX rounds 2.999 s down to 2
      EXPECT_EQ(option(fd, IPPROTO_TCP, TCP_KEEPINTVL), 1);
      EXPECT_EQ(option(fd, IPPROTO_TCP, TCP_KEEPCNT), 3);
      if (allowed) {  // the kernel doubles it
        EXPECT_EQ(option(fd, SOL_SOCKET, SO_SNDBUF), 2 * std::min(allowed, 4 << 20));
      }
    }
    end.send(1 - me, 1, &out, 1, 2);
    EXPECT_EQ(end.wait(1), Code::kOk);
    EXPECT_EQ(end.wait(2), Code::kOk);
  });
}

// UCX creates a thread, which must not run the program's signal handlers.
TEST(UcxConfig, SignalsDoNotReachTheThreadOfUcx) {
  run_ranks(2, [&](SharedBoard& board, Rank me) {
    const int before = threads_with_signals();
    RailEnd end(board, me, "ucx");
    char in = 0, out = 'x';
    end.recv(1 - me, 1, &in, 1, 1);
    end.send(1 - me, 1, &out, 1, 2);
    EXPECT_EQ(end.wait(1), Code::kOk);
    EXPECT_EQ(end.wait(2), Code::kOk);
    EXPECT_EQ(threads_with_signals(), before);
  });
}

// Two ranks connect to each other, and one is killed after the other has polled only a few times:
// both connections, in either direction, end at the same moment.
TEST(UcxConfig, APeerThatDiesWhileBothConnectIsNamed) {
  for (const Rank victim : {0, 1})
    for (int polls = 0; polls < 8; ++polls) {
      SCOPED_TRACE(fmt::format("rank {} dies after {} polls of the other", victim, polls));
      run_ranks(2,
                [&](SharedBoard& board, Rank me) {
                  RailEnd end(board, me, "ucx");
                  char in[8], out[8] = {};
                  end.recv(1 - me, 1, in, sizeof in, 1);
                  end.send(1 - me, 1, out, sizeof out, 2);
                  std::atomic<int>&posted = board.flag(0), &asked = board.flag(1),
                  &go = board.flag(2);
                  ++posted;
                  ASSERT_TRUE(SharedBoard::wait([&] { return posted.load() == 2; }));
                  if (me == victim) {
                    end.poll_for(milliseconds(20));
                    asked = getpid();
                    ASSERT_TRUE(SharedBoard::wait([&] { return go.load() == 1; }));
                    kill(getpid(), SIGKILL);
                  }
                  ASSERT_TRUE(SharedBoard::wait([&] { return asked.load() != 0; }));
                  for (int i = 0; i < polls; ++i) end.poll();
                  go = 1;
                  ASSERT_TRUE(wait_dead(asked));
                  end.recv(victim, 2, in, sizeof in, 3);
                  EXPECT_EQ(end.wait(3), Code::kPeerFailed);
                },
                {victim});
    }
}

}  // namespace
}  // namespace weft::testing
