// A waiting thread requests short scheduler slices once, and keeps its other attributes.
#include "topo/base/yield.h"

#include <gtest/gtest.h>
#include <sched.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cstdint>
#include <cstring>
#include <thread>

namespace weft {
namespace {

struct Attributes {  // sched_getattr(2)
  std::uint32_t size = sizeof(Attributes), policy = 0;
  std::uint64_t flags = 0;
  std::int32_t nice = 0;
  std::uint32_t priority = 0;
  std::uint64_t runtime = 0, deadline = 0, period = 0;
};

Attributes mine() {
  Attributes a;
  EXPECT_EQ(syscall(SYS_sched_getattr, 0, &a, sizeof a, 0), 0) << std::strerror(errno);
  return a;
}

TEST(Yield, AsksForShortSlicesAndKeepsTheRest) {
  if (mine().runtime == 0)
    GTEST_SKIP() << "missing capability: a kernel with slices of a thread's own (Linux 6.12)";
  std::thread([] {
    ASSERT_EQ(setpriority(PRIO_PROCESS, static_cast<id_t>(gettid()), 7), 0);
    const Attributes before = mine();
    yield_core();
    const Attributes after = mine();
    EXPECT_GT(before.runtime, 100'000u);
    EXPECT_EQ(after.runtime, 100'000u);
    EXPECT_EQ(after.nice, 7);
    EXPECT_EQ(after.policy, before.policy);
    EXPECT_EQ(after.flags, before.flags);
  }).join();
}

TEST(Yield, LeavesOtherPoliciesAlone) {
  std::thread([] {
    const sched_param none{};
    ASSERT_EQ(sched_setscheduler(0, SCHED_BATCH, &none), 0);
    const Attributes before = mine();
    yield_core();
    EXPECT_EQ(mine().policy, static_cast<std::uint32_t>(SCHED_BATCH));
    EXPECT_EQ(mine().runtime, before.runtime);
  }).join();
}

TEST(Yield, SlicesOfTheUsersOwnStay) {
  if (mine().runtime == 0)
    GTEST_SKIP() << "missing capability: a kernel with slices of a thread's own (Linux 6.12)";
  std::thread([] {
    yield_core();
    Attributes longer = mine();
    longer.runtime = 5'000'000;
    ASSERT_EQ(syscall(SYS_sched_setattr, 0, &longer, 0), 0);
    yield_core();
    EXPECT_EQ(mine().runtime, 5'000'000u);
  }).join();
}

}  // namespace
}  // namespace weft
