// More ranks than the accept queue of a listener holds (net.core.somaxconn).
// labels: multiproc waits
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <net/if.h>
#include <sched.h>
#include <sys/ioctl.h>

#include <array>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <fstream>

#include "tests/transport/rendezvous_helpers.h"

namespace weft {
namespace {

using namespace test;

// Moves this thread and its future children to a network namespace with accept queues of `most`.
// Needs root.
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

// Each test runs in its own network namespace, on a new thread.
class Queue : public ::testing::Test {
 protected:
  template <class Body>
  void in_network_of_short_queues(int most, Body body) {
    bool alone = false;
    std::thread inside([&] {
      alone = enter_network_of_short_queues(most);
      if (alone) body();
    });
    inside.join();
    if (!alone) GTEST_SKIP() << "missing capability: a network namespace of its own";
  }
  // Rank 1 is the heir of rank 0 in a job of three. Runs before(door, join) before rank 1 opens its
  // door; join() lets rank 2 connect there. Both must continue.
  template <class Before>
  void expect_heir_and_rank_2(Before before) {
    const std::vector<std::uint16_t> any{0};
    Fd heirs = listen_on("127.0.0.1", any);
    const std::string at = "127.0.0.1 " + std::to_string(port_of(heirs.get()));
    Specs setup(3, 10s);
    close(setup[0].listen_fd);
    std::string heard, mask;
    std::thread joins;
    before(heirs, [&] { joins = std::thread([&] { heard = joined(setup[2], at); }); });
    (void)assemble_survivors(setup[1], std::move(heirs), std::array{Rank{0}}, {at, at, at}, mask);
    joins.join();
    EXPECT_EQ(heard, "011");
  }
};

// Accepts the next connection.
Fd accepted(int listener) {
  Fd one;
  EXPECT_TRUE(eventually([&] {
    int error = 0;
    one = accept_from(listener, error);
    return static_cast<bool>(one);
  }));
  return one;
}

void expect_all_here(std::vector<Outcome>& outcomes) {
  for (const Outcome& o : outcomes) ASSERT_EQ(o.error, "");
  on_each(outcomes, [&](Job& job) { EXPECT_EQ(job.all_gather("").size(), outcomes.size()); });
  leave_all(outcomes);
}

// More concurrent ranks than the queue holds until rank 0 accepts them.
TEST_F(Queue, RanksFindRankZeroThoughItsQueueIsShort) {
  in_network_of_short_queues(2, [] {
    auto outcomes = connect_all(Specs(100).specs);
    expect_all_here(outcomes);
  });
}

// The queue was full, and the last packet of the handshake was lost.
TEST_F(Queue, AConnectionThatRankZeroKnowsNothingOfIsGivenUp) {
  Specs setup(2);
  Outcome leaf;
  std::thread connecting([&] { leaf.error = error_of([&] { leaf.job = connect(setup[1]); }); });
  const Fd lost = accepted(setup[0].listen_fd);
  auto outcomes = connect_all({setup[0]});
  connecting.join();
  EXPECT_EQ(leaf.error, "no error");
  outcomes.push_back({std::move(leaf.job), ""});
  expect_all_here(outcomes);
}

// net.core.somaxconn is 128 on many systems: with more ranks, some get no answer from the heir's
// host before the heir calls shrink().
TEST_F(Queue, ADoorWithAFullOneIsNoHostThatIsGone) {
  std::deque<Stranger> in_the_queue;
  in_network_of_short_queues(1, [&] {
    expect_heir_and_rank_2([&](const Fd& heirs, const auto& join) {
      for (int i = 0; i < 2; ++i) in_the_queue.emplace_back(port_of(heirs.get()));
      join();
      std::this_thread::sleep_for(5500ms);
    });
  });
}

// Ranks that found the first host gone have also connected to the heir's door before it accepts.
TEST_F(Queue, KnockingFillsTheOneOfTheHeir) {
  constexpr int kRanks = 8, kHeir = 2;
  in_network_of_short_queues(kRanks, [] {
    const std::vector<std::uint16_t> any{0};
    Fd heirs = listen_on("127.0.0.1", any);
    const std::vector<std::string> doors(kRanks,
                                         "127.0.0.1 " + std::to_string(port_of(heirs.get())));
    Specs setup(kRanks, 20s);
    close(setup[0].listen_fd);
    for (int r = kHeir + 1; r < kRanks; ++r)
      EXPECT_FALSE(mute_doors(setup[r], std::span(doors).first(1))[0]);
    std::vector<std::string> masks(kRanks);
    std::vector<std::thread> join;
    for (int r = kHeir + 1; r < kRanks; ++r)
      join.emplace_back(
          [&, r] { masks[static_cast<std::size_t>(r)] = joined(setup[r], doors[0]); });
    std::this_thread::sleep_for(5500ms);
    std::string heard;
    (void)assemble_survivors(setup[kHeir], std::move(heirs), std::array{Rank{0}}, doors, heard);
    for (std::thread& t : join) t.join();
    EXPECT_EQ(heard, "00111111");
    for (int r = kHeir + 1; r < kRanks; ++r) EXPECT_EQ(masks[static_cast<std::size_t>(r)], heard);
  });
}

// A dead host: its network neighbors get an error after 3 s, again for each door.
TEST_F(Queue, ANeighbourThatIsGoneIsLeftWithAllItsDoors) {
  bool linked = true;
  in_network_of_short_queues(4096, [&] {
    linked = std::system(
                 "ip link add weft0 type veth peer name weft1 && "
                 "ip address add 10.1.0.1/24 dev weft0 && "
                 "ip link set weft0 up && ip link set weft1 up") == 0;
    if (!linked) return;
    const std::vector<std::uint16_t> any{0};
    const Fd live = listen_on("10.1.0.1", any);
    Specs setup(4);
    close(setup[0].listen_fd);
    const std::vector<std::string> doors{"10.1.0.2 1", "10.1.0.2 2", "10.1.0.1 1",
                                         "10.1.0.1 " + std::to_string(port_of(live.get()))};
    EXPECT_THAT(mute_doors(setup[3], doors), ::testing::ElementsAre(true, true, false, false));
  });
  if (!linked) GTEST_SKIP() << "missing capability: veth devices, with iproute2";
}

// The queue was full, and the last packet of the handshake was lost: this rank considers itself
// connected, and the heir would continue without it.
TEST_F(Queue, AConnectionThatTheHeirKnowsNothingOfIsMadeAnew) {
  Fd lost;
  in_network_of_short_queues(1, [&] {
    expect_heir_and_rank_2([&](const Fd& heirs, const auto& join) {
      join();
      lost = accepted(heirs.get());
    });
  });
}

TEST_F(Queue, SurvivorsFindTheHeirThoughItsQueueIsShort) {
  in_network_of_short_queues(16, [] {
    auto jobs = connect_all(Specs(100).specs);
    on_each(jobs, [](Job& job) { (void)job.all_gather("here"); });
    jobs[0].job.reset();
    jobs.erase(jobs.begin());
    on_each(jobs, [](Job& job) { EXPECT_TRUE(eventually([&] { return job.failed(); })); });
    auto next = shrink_all(jobs);
    expect_all_here(next);
  });
}

}  // namespace
}  // namespace weft
