// shrink() of a job over sockets, by threads: who goes on, and who is told that it does not.
// labels: multiproc waits
// sanitize: long
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <ifaddrs.h>
#include <netdb.h>
#include <poll.h>

#include <array>
#include <atomic>
#include <optional>

#include "tests/transport/rendezvous_helpers.h"
#include "transport/job/job_assembly.h"

namespace weft {
namespace {

using namespace test;
using ::testing::HasSubstr;

std::string shrink_error(Job& job) {
  try {
    (void)job.shrink();
  } catch (const Error& e) {
    return e.what();
  }
  return "no error";
}

TEST(ShrinkOverSockets, RankZeroIsToldWhereTheOthersWentOnWithoutIt) {
  auto jobs = connect_all(Specs(3, 3s).specs);
  on_each(jobs, [](Job& job) { (void)job.all_gather("here"); });
  jobs[2].job->report(Status(Code::kTransport, "a cable", kNoRank));
  ASSERT_TRUE(eventually([&] { return jobs[0].job->failed() && jobs[1].job->failed(); }));
  // Rank 0 does something else for longer than they wait.
  std::vector<Outcome> others(2);
  std::vector<std::thread> threads;
  for (const std::size_t r : {1, 2})
    threads.emplace_back([&, r] { others[r - 1].job = jobs[r].job->shrink(); });
  for (std::thread& t : threads) t.join();
  EXPECT_EQ(others[0].job->size(), 2);
  EXPECT_EQ(others[1].job->size(), 2);
  EXPECT_THAT(shrink_error(*jobs[0].job), HasSubstr("the others go on without rank 0"));
  leave_all(others);
  leave_all(jobs);
}

TEST(ShrinkOverSockets, TooFewRanksWithoutRankZeroAreAllToldSo) {
  auto jobs = connect_all(Specs(5).specs);
  on_each(jobs, [](Job& job) { (void)job.all_gather("here"); });
  for (const std::size_t r : {0, 1, 4}) jobs[r].job.reset();
  std::vector<std::thread> threads;
  for (const std::size_t r : {2, 3})
    threads.emplace_back([&, r] {
      eventually([&] { return jobs[r].job->failed(); });
      EXPECT_THAT(shrink_error(*jobs[r].job), HasSubstr("only 2 of 5 ranks came to rank 2")) << r;
    });
  for (std::thread& t : threads) t.join();
}

// abort() returns before its thread has told anybody.
TEST(ShrinkOverSockets, WhoAbortsMayGoOnOrLeaveAtOnce) {
  for (const Rank r : {0, 1}) {
    auto jobs = connect_all(Specs(2).specs);
    Job& aborts = *jobs[static_cast<std::size_t>(r)].job;
    Job& other = *jobs[static_cast<std::size_t>(1 - r)].job;
    std::thread hears([&] {
      if (eventually([&] { return other.failed(); })) {
        EXPECT_EQ(other.shrink()->size(), 2);
      }
    });
    aborts.abort("enough");
    try {
      EXPECT_EQ(aborts.shrink()->size(), 2);
    } catch (const Error& e) {
      ADD_FAILURE() << "rank " << r << ": " << e.what();
    }
    hears.join();
    leave_all(jobs);
  }
  auto jobs = connect_all(Specs(2).specs);
  jobs[1].job->abort("enough");
  jobs[1].job->leave();
  EXPECT_TRUE(eventually([&] { return jobs[0].job->failed(); }));
  EXPECT_EQ(jobs[0].job->failure().code(), Code::kAborted);
  leave_all(jobs);
}

// Of this host, as other hosts know it; empty where it has none.
std::string outer_address() {
  std::string found;
  ifaddrs* list = nullptr;
  if (getifaddrs(&list) != 0) return found;
  for (const ifaddrs* i = list; i != nullptr && found.empty(); i = i->ifa_next) {
    char text[NI_MAXHOST];
    if (i->ifa_addr && i->ifa_addr->sa_family == AF_INET &&
        getnameinfo(i->ifa_addr, sizeof(sockaddr_in), text, sizeof text, nullptr, 0,
                    NI_NUMERICHOST) == 0 &&
        !on_loopback(text))
      found = text;
  }
  freeifaddrs(list);
  return found;
}

TEST(ShrinkOverSockets, NeighboursOfRankZeroAreFoundFromOtherHosts) {
  const std::string outer = outer_address();
  if (outer.empty()) GTEST_SKIP() << "missing capability: an address besides the loopback device's";
  const std::vector<std::uint16_t> any{0};
  Specs setup(3);
  const Fd listener = listen_on(outer, any);
  close(setup[0].listen_fd);
  setup[0].listen_fd = fcntl(listener.get(), F_DUPFD_CLOEXEC, 0);
  for (JobSpec& spec : setup.specs) spec.ports = {port_of(listener.get())};
  setup[1].address = "127.0.0.1," + outer + ".invalid";  // as its name is in its own /etc/hosts
  setup[2].address = outer;                              // and as another host looks it up
  std::vector<Outcome> jobs(2);
  std::vector<std::thread> threads;
  for (const int r : {0, 1})
    threads.emplace_back([&, r] { jobs[static_cast<std::size_t>(r)].job = connect(setup[r]); });
  RootLink link = assemble_leaf(setup[2]);
  for (std::thread& t : threads) t.join();
  link.channel.send(wire::Type::kDoor, outer + " 1");
  std::optional<std::vector<std::string>> doors;
  ASSERT_TRUE(eventually([&] {
    wire::Frame frame;
    while (link.channel.receive(frame) == Channel::Got::kFrame)
      if (frame.type == wire::Type::kDoors) doors = wire::decode_parts(frame.payload, 3);
    return doors.has_value();
  }));
  EXPECT_THAT((*doors)[1], ::testing::StartsWith(outer + " "));
  EXPECT_EQ((*doors)[2], outer + " 1");
  const auto at = door_endpoints((*doors)[1]);
  ASSERT_EQ(at.size(), 1U);
  int error = 0;
  const Fd knock = start_connect(at[0], error);
  ASSERT_TRUE(knock) << error;
  EXPECT_TRUE(eventually([&] {
    pollfd polled{knock.get(), POLLOUT, 0};
    return ::poll(&polled, 1, 0) == 1;
  }));
  EXPECT_EQ(connect_error(knock.get()), 0);
  link.channel.send(wire::Type::kLeave, {});
  leave_all(jobs);
}

// Whether rank 0 leaves before a rank wants to go on, or after.
// Rank 2 has no file left for a door when it calls shrink(), and one a moment later. Without the
// doors of all, the end of rank 0 would be that of the next job.
TEST(ShrinkOverSockets, ADoorThatIsOpenedLateCounts) {
  Specs setup(3);
  std::vector<Outcome> jobs(2);
  std::vector<std::thread> threads;
  for (const int r : {0, 1})
    threads.emplace_back([&, r] { jobs[static_cast<std::size_t>(r)].job = connect(setup[r]); });
  RootLink link = assemble_leaf(setup[2]);
  for (std::thread& t : threads) t.join();
  threads.clear();
  link.channel.send(wire::Type::kDoor, "127.0.0.1 1");
  const auto hears = [&](wire::Type type) {
    return eventually([&] {
      wire::Frame frame;
      while (link.channel.receive(frame) == Channel::Got::kFrame)
        if (frame.type == type) return true;
      return false;
    });
  };
  ASSERT_TRUE(hears(wire::Type::kDoors));
  jobs[0].job->report(Status(Code::kTransport, "a cable", kNoRank));
  ASSERT_TRUE(eventually([&] { return jobs[1].job->failed(); }));
  link.channel.send(wire::Type::kShrink, {});
  std::vector<std::unique_ptr<Job>> next(2);
  for (const std::size_t r : {0, 1})
    threads.emplace_back([&, r] { next[r] = jobs[r].job->shrink(); });
  EXPECT_TRUE(hears(wire::Type::kShrunk));
  for (std::thread& t : threads) t.join();
  link.channel.send(wire::Type::kDoor, "127.0.0.1 2");
  EXPECT_TRUE(hears(wire::Type::kDoors));
  link.channel.send(wire::Type::kLeave, {});
  for (const std::size_t r : {1, 0}) next[r]->leave();
}

TEST(ShrinkOverSockets, NobodyWaitsForARankZeroThatHasLeft) {
  for (const bool before : {true, false}) {
    Specs setup(2);
    Outcome root;
    std::thread connecting([&] { root.job = connect(setup[0]); });
    RootLink link = assemble_leaf(setup[1]);
    connecting.join();
    root.job->report(Status(Code::kTransport, "a cable", kNoRank));
    if (before) root.job->leave();
    link.channel.send(wire::Type::kShrink, {});
    // It has read that when it answers what comes behind it.
    link.channel.send(wire::Type::kInquire, wire::encode(wire::Numbered{1, {}}));
    bool told = false;
    const auto hear = [&](wire::Type type) {
      return eventually([&] {
        wire::Frame frame;
        bool heard = false;
        while (link.channel.receive(frame) == Channel::Got::kFrame) {
          told = told || frame.type == wire::Type::kGoodbye;
          heard = heard || frame.type == type;
        }
        return heard;
      });
    };
    EXPECT_TRUE(hear(wire::Type::kTestimony));
    EXPECT_EQ(told, before);
    root.job->leave();
    // A heartbeat that comes after that.
    if (!told) {
      EXPECT_TRUE(hear(wire::Type::kHeartbeat));
      EXPECT_TRUE(hear(wire::Type::kHeartbeat));
    }
    EXPECT_TRUE(told) << before;
    link.channel.send(wire::Type::kLeave, {});
  }
}

// Rank 3 asked what all do, and died. Rank 1 answers when the others go on already.
TEST(ShrinkOverSockets, AnAnswerToWhoIsGoneIsNoFailureOfTheJobThatGoesOn) {
  Specs setup(4);
  Outcome root;
  std::vector<RootLink> links(3);
  std::vector<std::thread> threads;
  threads.emplace_back([&] { root.job = connect(setup[0]); });
  for (std::size_t i = 0; i < links.size(); ++i)
    threads.emplace_back([&, i] { links[i] = assemble_leaf(setup[static_cast<int>(i) + 1]); });
  for (std::thread& t : threads) t.join();
  links.pop_back();
  ASSERT_TRUE(eventually([&] { return root.job->failed(); }));
  for (RootLink& link : links) link.channel.send(wire::Type::kShrink, {});
  const auto next = root.job->shrink();
  ASSERT_EQ(next->size(), 3);
  links[0].channel.send(wire::Type::kTestimony,
                        wire::encode(wire::Numbered{std::uint64_t{3} << 32 | 1, "busy"}));
  // What comes behind it is heard.
  for (RootLink& link : links)
    link.channel.send_gather(1, std::make_shared<const std::string>("here"));
  try {
    EXPECT_EQ(next->all_gather("here"), std::vector<std::string>(3, "here"));
  } catch (const Error& e) {
    ADD_FAILURE() << e.what();
  }
  for (RootLink& link : links) link.channel.send(wire::Type::kLeave, {});
  next->leave();
  root.job->leave();
}

// The host of several ranks is gone with rank 0: who looks for the heir does not stay at each of
// their doors as long as at that of a rank which may be busy.
TEST(ShrinkOverSockets, AHostThatDoesNotAnswerIsLeftBeforeARankThatDoesNotTalk) {
  const std::vector<std::uint16_t> any{0};
  const Fd busy = listen_on("127.0.0.1", any), gone = listen_on("127.0.0.1", any);
  ASSERT_EQ(::listen(gone.get(), 0), 0);  // what does not fit in its queue hears nothing
  const Stranger first(port_of(gone.get()));
  Specs setup(3, 4s);
  close(setup[0].listen_fd);
  std::atomic<bool> left_busy{false};
  const auto knock = [&](const Fd& door) {
    std::string mask;
    EXPECT_THROW(
        (void)join_survivors(setup[2], "127.0.0.1 " + std::to_string(port_of(door.get())), mask),
        Error);
  };
  std::thread waits([&] {
    knock(busy);
    left_busy = true;
  });
  std::this_thread::sleep_for(100ms);
  knock(gone);
  EXPECT_FALSE(left_busy);
  waits.join();
}

// The first host is gone with all its ranks: who looks for the heir tries them at once, not each
// for as long as a host may take to answer.
TEST(ShrinkOverSockets, AHostOfManyRanksIsLeftAtOnce) {
  constexpr int kRanks = 12;
  const std::vector<std::uint16_t> any{0};
  const Fd gone = listen_on("127.0.0.1", any);
  ASSERT_EQ(::listen(gone.get(), 0), 0);  // what does not fit in its queue hears nothing
  const Stranger first(port_of(gone.get()));
  const std::string door = "127.0.0.1 " + std::to_string(port_of(gone.get()));
  Specs setup(kRanks, 3s);
  Outcome root, heir;
  std::vector<RootLink> links(kRanks - 2);
  std::vector<std::thread> threads;
  threads.emplace_back([&] { root.job = connect(setup[0]); });
  threads.emplace_back([&] { heir.job = connect(setup[kRanks - 1]); });
  for (std::size_t i = 0; i < links.size(); ++i)
    threads.emplace_back([&, i] { links[i] = assemble_leaf(setup[static_cast<int>(i) + 1]); });
  for (std::thread& t : threads) t.join();
  bool told = false;
  for (RootLink& link : links) link.channel.send(wire::Type::kDoor, door);
  ASSERT_TRUE(eventually([&] {
    wire::Frame frame;
    while (links[0].channel.receive(frame) == Channel::Got::kFrame)
      told = told || frame.type == wire::Type::kDoors;
    return told;
  }));
  // The heir is told before rank 0 ends.
  root.job.reset();
  ASSERT_TRUE(eventually([&] { return heir.job->failed(); }));
  std::atomic<bool> left_all{false};
  std::thread one_by_one([&] {
    for (int i = 0; i < 3; ++i) {
      std::string mask;
      EXPECT_THROW((void)join_survivors(setup[1], door, mask), Error);
    }
    left_all = true;
  });
  EXPECT_THAT(shrink_error(*heir.job), HasSubstr("only 1 of 12 ranks came"));
  EXPECT_FALSE(left_all);
  one_by_one.join();
  heir.job->leave();
}

// A switch is gone with all the hosts behind it: nobody answers there, and those that live come to
// the heir meanwhile.
TEST(ShrinkOverSockets, ManyRanksThatDoNotAnswerKeepNobodyFromJoining) {
  constexpr int kRanks = 100;
  const std::vector<std::uint16_t> any{0};
  Fd heirs = listen_on("127.0.0.1", any);
  const Fd seconds = listen_on("127.0.0.1", any), mute = listen_on("127.0.0.1", any);
  ASSERT_EQ(::listen(mute.get(), 0), 0);  // what does not fit in its queue hears nothing
  const Stranger first(port_of(mute.get()));
  const auto door = [](const Fd& fd) { return "127.0.0.1 " + std::to_string(port_of(fd.get())); };
  std::vector<std::string> doors(kRanks, door(mute));
  doors[1] = door(heirs), doors[2] = door(seconds);
  Specs setup(kRanks, 3s);
  close(setup[0].listen_fd);
  std::string heard;
  std::thread second([&] {
    try {
      (void)join_survivors(setup[2], doors[1], heard);
    } catch (const Error& e) {
      heard = e.what();
    }
  });
  std::string mask;
  (void)assemble_survivors(setup[1], std::move(heirs), std::array{Rank{0}}, doors, mask);
  second.join();
  EXPECT_EQ(mask, "011" + std::string(kRanks - 3, '0'));
  EXPECT_EQ(heard, mask);
}

}  // namespace
}  // namespace weft
