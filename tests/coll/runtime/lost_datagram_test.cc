// A datagram is lost while its sender makes no weft calls for a long time.
// labels: multiproc waits
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <memory>

#include "coll/api/communicator.h"
#include "support/jobs/processes.h"
#include "support/jobs/ranks.h"
#include "tests/transport/lost_datagrams.h"

namespace weft {
namespace {

using std::chrono::seconds;
using testing::Processes;

struct Steps {
  std::atomic<int> ready, lossy, received;
};

bool until(const std::atomic<int>& step, int value) {
  return Processes::wait_until(seconds(60), [&] { return step.load() == value; });
}

// The first rank sends, and then makes no call until the other rank has received the message.
int be_a_rank(const JobSpec& spec, Steps& steps) {
  const auto where = testing::places({1, 1}, 1);
  World world(connect(spec), where[static_cast<std::size_t>(spec.rank)],
              {.transport = "tcp", .timeout = seconds(30)});
  Communicator all = world.world();
  for (int i = 0; i < 300; ++i)  // datagrams are in use by then
    if (!all.barrier().ok()) return 2;
  ++steps.ready;
  if (!until(steps.ready, 2)) return 3;
  std::uint64_t word = 4711;
  if (spec.rank == 1) {
    testing::lose(256);
    steps.lossy = 1;
    const Status status = all.recv(&word, 1, DType::kUInt64, 0);
    if (!status.ok()) std::printf("%s\n", status.to_string().c_str());
    steps.received = status.ok() && word == 815;
  } else if (until(steps.lossy, 1)) {
    word = 815;
    if (!all.send(&word, 1, DType::kUInt64, 1).ok()) return 4;
    until(steps.received, 1);
  }
  return steps.received == 1 && !::testing::Test::HasFailure() ? 0 : 5;
}

// The send had completed: the receiver must not depend on the sender's next call.
TEST(LostDatagram, IsRepeatedThoughNobodyPolls) {
  setenv("WEFT_TCP_DATAGRAMS", "1", 1);
  testing::Shared<Steps> steps(1);
  Processes job(2, seconds(10), [&](const JobSpec& spec) { return be_a_rank(spec, steps[0]); });
  unsetenv("WEFT_TCP_DATAGRAMS");
  ASSERT_TRUE(job.wait(seconds(90)));
  EXPECT_EQ(job.code(0), 0);
  EXPECT_EQ(job.code(1), 0);
}

}  // namespace
}  // namespace weft
