// shrink() of a job over sockets, with threads: which ranks continue, and the error of the other
// ranks.
// labels: multiproc waits
// sanitize: long
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <poll.h>

#include <array>
#include <atomic>

#include "tests/transport/rendezvous_helpers.h"

namespace weft {
namespace {

using namespace test;
using ::testing::HasSubstr;
using ::testing::Not;

const auto kMask = ::testing::MatchesRegex("[01]+");  // result of joined() on success

std::string shrink_error(Job& job) {
  return error_of([&] { return job.shrink(); });
}

TEST(ShrinkOverSockets, RankZeroIsToldWhereTheOthersWentOnWithoutIt) {
  auto jobs = connect_all(Specs(3, 3s).specs);
  on_each(jobs, [](Job& job) { (void)job.all_gather("here"); });
  jobs[2].job->report(Status(Code::kTransport, "a cable", kNoRank));
  ASSERT_TRUE(eventually([&] { return jobs[0].job->failed() && jobs[1].job->failed(); }));
  // Rank 0 is busy for longer than the other ranks wait.
  auto others = shrink_all(std::span(jobs).subspan(1));
  EXPECT_EQ(others[0].job->size(), 2);
  EXPECT_EQ(others[1].job->size(), 2);
  EXPECT_THAT(shrink_error(*jobs[0].job), HasSubstr("the other ranks continue without rank 0"));
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
      EXPECT_THAT(shrink_error(*jobs[r].job), HasSubstr("only 2 of 5 ranks joined rank 2")) << r;
    });
  for (std::thread& t : threads) t.join();
}

// abort() returns before its thread has notified other ranks.
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
    EXPECT_EQ(error_of([&] { EXPECT_EQ(aborts.shrink()->size(), 2); }), "no error") << r;
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

TEST(ShrinkOverSockets, NeighboursOfRankZeroAreFoundFromOtherHosts) {
  const std::string outer = outer_address();
  if (outer.empty()) GTEST_SKIP() << "missing capability: an address besides the loopback device's";
  Specs setup = specs_at(outer, 3);
  setup[1].address = "127.0.0.1," + outer + ".invalid";  // like a host's name in its own /etc/hosts
  HandJob h(setup, {2});                                 // its address as resolved by another host
  h.link(2).send(wire::Type::kDoor, outer + " 1");
  const auto told = h.hear(2, wire::Type::kDoors);
  ASSERT_TRUE(told);
  const auto doors = wire::unpack_parts(*told, 3, 1 << 20);
  ASSERT_TRUE(doors);
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
  h.link(2).send(wire::Type::kLeave, {});
  leave_all(h.jobs);
}

// Rank 2 has no file descriptor for a door when it calls shrink(), but gets one soon after. Without
// the doors of all ranks, rank 0's death would also end the next job.
TEST(ShrinkOverSockets, ADoorThatIsOpenedLateCounts) {
  HandJob h(Specs(3), {2});
  h.link(2).send(wire::Type::kDoor, "127.0.0.1 1");
  ASSERT_TRUE(h.hear(2, wire::Type::kDoors));
  h.job(0).report(Status(Code::kTransport, "a cable", kNoRank));
  ASSERT_TRUE(eventually([&] { return h.job(1).failed(); }));
  h.link(2).send(wire::Type::kShrink, {});
  auto next = shrink_all(std::span(h.jobs).first(2));
  EXPECT_TRUE(h.hear(2, wire::Type::kShrunk));
  h.link(2).send(wire::Type::kDoor, "127.0.0.1 2");
  EXPECT_TRUE(h.hear(2, wire::Type::kDoors));
  h.link(2).send(wire::Type::kLeave, {});
  leave_all(next);
}

// Rank 0 leaves before or after a rank calls shrink().
TEST(ShrinkOverSockets, NobodyWaitsForARankZeroThatHasLeft) {
  for (const bool before : {true, false}) {
    HandJob h(Specs(2), {1});
    h.job(0).report(Status(Code::kTransport, "a cable", kNoRank));
    if (before) h.job(0).leave();
    h.link(1).send(wire::Type::kShrink, {});
    // An answer to this message proves that the earlier one was read.
    h.link(1).send(wire::Type::kInquire, wire::encode(wire::Numbered{1, {}}));
    bool told = false;
    const auto hear = [&](wire::Type type) {
      return eventually([&] {
        wire::Frame frame;
        bool heard = false;
        while (h.link(1).receive(frame) == Channel::Got::kFrame) {
          told = told || frame.type == wire::Type::kGoodbye;
          heard = heard || frame.type == type;
        }
        return heard;
      });
    };
    EXPECT_TRUE(hear(wire::Type::kTestimony));
    EXPECT_EQ(told, before);
    h.job(0).leave();
    // A later heartbeat.
    if (!told) {
      EXPECT_TRUE(hear(wire::Type::kHeartbeat));
      EXPECT_TRUE(hear(wire::Type::kHeartbeat));
    }
    EXPECT_TRUE(told) << before;
    h.link(1).send(wire::Type::kLeave, {});
  }
}

// Rank 3 sent an inquiry and died. Rank 1 answers after the others have shrunk the job.
TEST(ShrinkOverSockets, AnAnswerToWhoIsGoneIsNoFailureOfTheJobThatGoesOn) {
  HandJob h(Specs(4), {1, 2, 3});
  h.links.pop_back();
  ASSERT_TRUE(eventually([&] { return h.job(0).failed(); }));
  for (const Rank r : {1, 2}) h.link(r).send(wire::Type::kShrink, {});
  const auto next = h.job(0).shrink();
  ASSERT_EQ(next->size(), 3);
  h.link(1).send(wire::Type::kTestimony,
                 wire::encode(wire::Numbered{std::uint64_t{3} << 32 | 1, "busy"}));
  // Later messages on the connection are read.
  for (const Rank r : {1, 2}) h.link(r).send_gather(1, std::make_shared<const std::string>("here"));
  EXPECT_EQ(
      error_of([&] { EXPECT_EQ(next->all_gather("here"), std::vector<std::string>(3, "here")); }),
      "no error");
  for (const Rank r : {1, 2}) h.link(r).send(wire::Type::kLeave, {});
  next->leave();
  h.job(0).leave();
}

// The host of several ranks died with rank 0: a rank that looks for the heir waits less at each of
// its doors than at that of a rank which may be busy.
TEST(ShrinkOverSockets, AHostThatDoesNotAnswerIsLeftBeforeARankThatDoesNotTalk) {
  const std::vector<std::uint16_t> any{0};
  const Fd busy = listen_on("127.0.0.1", any), gone = listen_on("127.0.0.1", any);
  ASSERT_EQ(::listen(gone.get(), 0), 0);  // connections beyond its queue get no answer
  const Stranger first(port_of(gone.get()));
  Specs setup(3, 4s);
  close(setup[0].listen_fd);
  std::atomic<bool> left_busy{false};
  const auto knock = [&](const Fd& door) {
    EXPECT_THAT(joined(setup[2], "127.0.0.1 " + std::to_string(port_of(door.get()))), Not(kMask));
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

// The first host died with all its ranks: a rank that looks for the heir tries them at once, not
// one timeout after the other.
TEST(ShrinkOverSockets, AHostOfManyRanksIsLeftAtOnce) {
  constexpr int kRanks = 12;
  const std::vector<std::uint16_t> any{0};
  const Fd gone = listen_on("127.0.0.1", any);
  ASSERT_EQ(::listen(gone.get(), 0), 0);  // connections beyond its queue get no answer
  const Stranger first(port_of(gone.get()));
  const std::string door = "127.0.0.1 " + std::to_string(port_of(gone.get()));
  Specs setup(kRanks, 3s);
  std::vector<Rank> by_hand;
  for (Rank r = 1; r + 1 < kRanks; ++r) by_hand.push_back(r);
  HandJob h(setup, by_hand);
  for (const Rank r : by_hand) h.link(r).send(wire::Type::kDoor, door);
  ASSERT_TRUE(h.hear(1, wire::Type::kDoors));
  Outcome &root = h.jobs.front(), &heir = h.jobs.back();
  // The heir is notified before rank 0 ends.
  root.job.reset();
  ASSERT_TRUE(eventually([&] { return heir.job->failed(); }));
  std::atomic<bool> left_all{false};
  std::thread one_by_one([&] {
    for (int i = 0; i < 3; ++i) EXPECT_THAT(joined(setup[1], door), Not(kMask));
    left_all = true;
  });
  EXPECT_THAT(shrink_error(*heir.job), HasSubstr("only 1 of 12 ranks joined"));
  EXPECT_FALSE(left_all);
  one_by_one.join();
  heir.job->leave();
}

// A switch died with all hosts behind it: these hosts do not answer, and meanwhile the live ranks
// join the heir.
TEST(ShrinkOverSockets, ManyRanksThatDoNotAnswerKeepNobodyFromJoining) {
  constexpr int kRanks = 100;
  const std::vector<std::uint16_t> any{0};
  Fd heirs = listen_on("127.0.0.1", any);
  const Fd seconds = listen_on("127.0.0.1", any), mute = listen_on("127.0.0.1", any);
  ASSERT_EQ(::listen(mute.get(), 0), 0);  // connections beyond its queue get no answer
  const Stranger first(port_of(mute.get()));
  const auto door = [](const Fd& fd) { return "127.0.0.1 " + std::to_string(port_of(fd.get())); };
  std::vector<std::string> doors(kRanks, door(mute));
  doors[1] = door(heirs), doors[2] = door(seconds);
  Specs setup(kRanks, 3s);
  close(setup[0].listen_fd);
  std::string heard;
  std::thread second([&] { heard = joined(setup[2], doors[1]); });
  std::string mask;
  (void)assemble_survivors(setup[1], std::move(heirs), std::array{Rank{0}}, doors, mask);
  second.join();
  EXPECT_EQ(mask, "011" + std::string(kRanks - 3, '0'));
  EXPECT_EQ(heard, mask);
}

}  // namespace
}  // namespace weft
