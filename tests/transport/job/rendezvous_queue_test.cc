// More ranks than a listener keeps until somebody accepts them (net.core.somaxconn).
// labels: multiproc waits
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <net/if.h>
#include <sched.h>
#include <sys/ioctl.h>

#include <array>
#include <cstdlib>
#include <cstring>
#include <fstream>

#include "tests/transport/rendezvous_helpers.h"
#include "transport/job/job_assembly.h"

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
    (void)assemble_survivors(setup[1], std::move(heirs), std::array{Rank{0}}, {at, at, at}, mask);
    joins.join();
  });
  inside.join();
  if (!alone) GTEST_SKIP() << "missing capability: a network namespace of its own";
  EXPECT_EQ(heard, "011");
}

// Who found that the first host was gone has knocked at the heir's door, too, before it came there.
TEST(Queue, KnockingFillsTheOneOfTheHeir) {
  constexpr int kRanks = 8, kHeir = 2;
  std::string heard;
  bool alone = false;
  std::thread inside([&] {
    alone = enter_network_of_short_queues(kRanks);
    if (!alone) return;
    const std::vector<std::uint16_t> any{0};
    Fd heirs = listen_on("127.0.0.1", any);
    const std::vector<std::string> doors(kRanks,
                                         "127.0.0.1 " + std::to_string(port_of(heirs.get())));
    Specs setup(kRanks, 20s);
    close(setup[0].listen_fd);
    for (int r = kHeir + 1; r < kRanks; ++r)
      EXPECT_FALSE(mute_doors(setup[r], std::span(doors).first(1))[0]);
    std::vector<std::string> problems(kRanks);
    std::vector<std::thread> join;
    for (int r = kHeir + 1; r < kRanks; ++r)
      join.emplace_back([&, r] {
        std::string mask;
        try {
          (void)join_survivors(setup[r], doors[0], mask);
        } catch (const Error& e) {
          problems[static_cast<std::size_t>(r)] = e.what();
        }
      });
    std::this_thread::sleep_for(5500ms);
    (void)assemble_survivors(setup[kHeir], std::move(heirs), std::array{Rank{0}}, doors, heard);
    for (std::thread& t : join) t.join();
    EXPECT_THAT(problems, ::testing::Each(""));
  });
  inside.join();
  if (!alone) GTEST_SKIP() << "missing capability: a network namespace of its own";
  EXPECT_EQ(heard, "00111111");
}

// A host that is gone: its neighbours in the network are told so after 3 s, and anew for each door.
TEST(Queue, ANeighbourThatIsGoneIsLeftWithAllItsDoors) {
  std::vector<bool> mute;
  bool alone = false;
  std::thread inside([&] {
    alone = enter_network_of_short_queues(4096) &&
            std::system(
                "ip link add weft0 type veth peer name weft1 && "
                "ip address add 10.1.0.1/24 dev weft0 && "
                "ip link set weft0 up && ip link set weft1 up") == 0;
    if (!alone) return;
    const std::vector<std::uint16_t> any{0};
    const Fd live = listen_on("10.1.0.1", any);
    Specs setup(4);
    close(setup[0].listen_fd);
    const std::vector<std::string> doors{"10.1.0.2 1", "10.1.0.2 2", "10.1.0.1 1",
                                         "10.1.0.1 " + std::to_string(port_of(live.get()))};
    mute = mute_doors(setup[3], doors);
  });
  inside.join();
  if (!alone) GTEST_SKIP() << "missing capability: a network namespace of its own, with iproute2";
  EXPECT_THAT(mute, ::testing::ElementsAre(true, true, false, false));
}

// As where that queue was full and the last step of connecting was lost: this rank takes itself for
// connected, and the heir goes on without it.
TEST(Queue, AConnectionThatTheHeirKnowsNothingOfIsMadeAnew) {
  std::string heard;
  bool alone = false;
  std::thread inside([&] {
    alone = enter_network_of_short_queues(1);
    if (!alone) return;
    const std::vector<std::uint16_t> any{0};
    Fd heirs = listen_on("127.0.0.1", any);
    const std::string at = "127.0.0.1 " + std::to_string(port_of(heirs.get()));
    Specs setup(3, 10s);
    close(setup[0].listen_fd);
    std::thread joins([&] {
      try {
        (void)join_survivors(setup[2], at, heard);
      } catch (const Error& e) {
        heard = e.what();
      }
    });
    Fd lost;
    EXPECT_TRUE(eventually([&] {
      int error = 0;
      lost = accept_from(heirs.get(), error);
      return static_cast<bool>(lost);
    }));
    std::string mask;
    (void)assemble_survivors(setup[1], std::move(heirs), std::array{Rank{0}}, {at, at, at}, mask);
    joins.join();
  });
  inside.join();
  if (!alone) GTEST_SKIP() << "missing capability: a network namespace of its own";
  EXPECT_EQ(heard, "011");
}

TEST(Queue, SurvivorsFindTheHeirThoughItsQueueIsShort) {
  bool alone = false;
  std::thread inside([&] {
    alone = enter_network_of_short_queues(16);
    if (!alone) return;
    auto jobs = connect_all(Specs(200).specs);
    on_each(jobs, [](Job& job) { (void)job.all_gather("here"); });
    jobs[0].job.reset();
    jobs.erase(jobs.begin());
    std::vector<Outcome> next(jobs.size());
    std::vector<std::thread> threads;
    for (std::size_t i = 0; i < jobs.size(); ++i)
      threads.emplace_back([&, i] {
        EXPECT_TRUE(eventually([&] { return jobs[i].job->failed(); }));
        try {
          next[i].job = jobs[i].job->shrink();
        } catch (const Error& e) {
          next[i].error = e.what();
        }
      });
    for (std::thread& t : threads) t.join();
    expect_all_here(next);
  });
  inside.join();
  if (!alone) GTEST_SKIP() << "missing capability: a network namespace of its own";
}

}  // namespace
}  // namespace weft
