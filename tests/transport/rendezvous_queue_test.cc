// More ranks than a listener keeps until somebody accepts them (net.core.somaxconn).
// labels: multiproc
#include <gtest/gtest.h>
#include <net/if.h>
#include <sched.h>
#include <sys/ioctl.h>

#include <cstring>
#include <fstream>

#include "tests/transport/rendezvous_helpers.h"
#include "transport/job_assembly.h"

namespace weft {
namespace {

using namespace test;

// A network of its own for this thread and those that it starts, in which the queue of a listener
// holds so many. Needs root.
bool enter_network_of_short_queues(int most) {
  if (unshare(CLONE_NEWNET) != 0) return false;
  const int any = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
  ifreq lo{};
  std::strcpy(lo.ifr_name, "lo");
  lo.ifr_flags = IFF_UP | IFF_RUNNING;
  const bool up = ioctl(any, SIOCSIFFLAGS, &lo) == 0;
  close(any);
  std::ofstream limit("/proc/sys/net/core/somaxconn");
  return up && (limit << most).flush().good();
}

void expect_all_here(std::vector<Outcome>& outcomes) {
  for (const Outcome& o : outcomes) ASSERT_EQ(o.error, "");
  on_each(outcomes, [&](Job& job) { EXPECT_EQ(job.all_gather("").size(), outcomes.size()); });
  leave_all(outcomes);
}

// More ranks at once than a listener keeps until rank 0 accepts them.
TEST(Queue, RanksFindRankZeroThoughItsQueueIsShort) {
  bool alone = false;
  std::thread inside([&] {
    alone = enter_network_of_short_queues(2);
    if (!alone) return;
    auto outcomes = connect_all(Specs(200).specs);
    expect_all_here(outcomes);
  });
  inside.join();
  if (!alone) GTEST_SKIP() << "missing capability: a network namespace of its own";
}

// As where the queue was full, and the answer to the listener's answer was lost.
TEST(Queue, AConnectionThatRankZeroKnowsNothingOfIsGivenUp) {
  Specs setup(2);
  Outcome leaf;
  std::thread connecting([&] {
    try {
      leaf.job = connect(setup[1]);
    } catch (const Error& e) {
      leaf.error = e.what();
    }
  });
  Fd lost;
  ASSERT_TRUE(eventually([&] {
    int error = 0;
    lost = accept_from(setup[0].listen_fd, error);
    return static_cast<bool>(lost);
  }));
  auto outcomes = connect_all({setup[0]});
  connecting.join();
  outcomes.push_back(std::move(leaf));
  expect_all_here(outcomes);
}

// net.core.somaxconn is 128 on many systems: of more ranks some hear nothing from the host of an
// heir that has not come to shrink() yet.
TEST(Queue, ADoorWithAFullOneIsNoHostThatIsGone) {
  std::string heard;
  bool alone = false;
  std::thread inside([&] {
    alone = enter_network_of_short_queues(1);
    if (!alone) return;
    const std::vector<std::uint16_t> any{0};
    Fd heirs = listen_on("127.0.0.1", any);
    const std::string at = "127.0.0.1 " + std::to_string(port_of(heirs.get()));
    const Stranger first(port_of(heirs.get())), second(port_of(heirs.get()));
    Specs setup(3, 10s);
    close(setup[0].listen_fd);
    std::thread joins([&] {
      try {
        (void)join_survivors(setup[2], at, heard);
      } catch (const Error& e) {
        heard = e.what();
      }
    });
    std::this_thread::sleep_for(5500ms);
    std::string mask;
    (void)assemble_survivors(setup[1], std::move(heirs), 0, {at, at, at}, mask);
    joins.join();
  });
  inside.join();
  if (!alone) GTEST_SKIP() << "missing capability: a network namespace of its own";
  EXPECT_EQ(heard, "011");
}

}  // namespace
}  // namespace weft
