// The verbs transport on the fake device with the limits of real ones, refusals of a device, and
// bounds on the cost of a message.
// ctest: alone
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <deque>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "support/fakes/fake_verbs.h"
#include "support/fakes/forged_job.h"
#include "transport/conformance.h"
#include "transport/late_messages.h"
#include "transport/verbs/verbs.h"

namespace weft::testing {
namespace {

using ::testing::HasSubstr;

class VerbsUnkind : public ::testing::Test {
 protected:
  void SetUp() override { fake_.wired = true; }
  void TearDown() override {
    fake_.wired = fake_.kind = false;
    fake_.limits = kFakeLimits[0];
    fake_.most_registered = SIZE_MAX;
    fake_.refuse_after = -1;
    fake_.up = true;
    fake_.reports.clear();
    unsetenv("WEFT_VERBS_WR");
    EXPECT_TRUE(fake_.pairs.empty());
    EXPECT_TRUE(fake_.regions.empty());
  }
  static Net net(int n, bool replaceable = false) {
    Nic rail;
    rail.name = "fake";
    rail.rdma = rail.up = true;
    return Net(make_in_threads(n, [&](Job& job, Rank) {
      return make_verbs_transport(job, separate_hosts(n, rail), rail, replaceable);
    }));
  }
  static void pass(Net& net, Rank a, Rank b, std::uint64_t tag, std::size_t bytes) {
    Buffer from(bytes), to(bytes);
    from.fill(tag);
    net[a].send(b, tag, from);
    net[b].recv(a, tag, to);
    ASSERT_TRUE(net.finish());
    EXPECT_TRUE(has_pattern(to.data(), bytes, tag));
  }
  // The increase of a count.
  std::size_t since(std::size_t FakeVerbs::Counts::*what, const FakeVerbs::Counts& before) const {
    return fake_.counts.*what - before.*what;
  }
  FakeVerbs& fake_ = FakeVerbs::get();
};

TEST_F(VerbsUnkind, MessagesPassWithinTheLimitsOfEveryDevice) {
  for (const FakeLimits& limits : kFakeLimits) {
    if (!limits.reliable) continue;
    SCOPED_TRACE(limits.device);
    fake_.limits = limits;
    Net three = net(3);
    std::uint64_t tag = 1;
    for (const std::size_t bytes : {0, 1, 40, 96, 101, 500, 5000, 40'000})
      for (Rank a = 0; a < 3; ++a) pass(three, a, (a + 1) % 3, tag++, bytes);
  }
}

// An unsuitable device is refused with the reason and a remedy.
TEST_F(VerbsUnkind, ADeviceWithoutReliableConnectionsIsRefusedByName) {
  for (const FakeLimits& limits : kFakeLimits) {
    if (limits.reliable) continue;
    fake_.limits = limits;
    Net two = net(2);
    Buffer from(100);
    two[0].send(1, 1, from);
    ASSERT_TRUE(two.until([&] { return two[0].idle(); }));
    EXPECT_FALSE(two[0].all_ok());
    EXPECT_THAT(two[0].transport().cause(1).to_string(), HasSubstr("device fake port 1"));
    two[0].give_up();
  }
}

// Many messages both ways over several queue pairs, whose requests overtake each other.
TEST_F(VerbsUnkind, NothingIsLostWhereQueuePairsOvertakeEachOther) {
  setenv("WEFT_VERBS_QPS", "4", 1);
  setenv("WEFT_VERBS_SLOTS", "4", 1);
  for (std::uint32_t seed = 1; seed <= 20; ++seed) {
    SCOPED_TRACE(seed);
    fake_.random.seed(seed);
    Net two = net(2);
    std::deque<Buffer> from, to;
    constexpr std::uint64_t kMessages = 60;
    const auto bytes_of = [](std::uint64_t tag) {
      return static_cast<std::size_t>(tag % 7 == 0 ? 300'000 : tag * 331 % 20'000);
    };
    for (std::uint64_t tag = 0; tag < kMessages; ++tag) {
      const auto a = static_cast<Rank>(tag % 2);
      from.emplace_back(bytes_of(tag)).fill(tag);
      two[a].send(1 - a, tag, from.back());
      if (tag % 3 == 0) two[1 - a].poll();
      two[1 - a].recv(a, tag, to.emplace_back(bytes_of(tag)));
    }
    ASSERT_TRUE(two.finish());
    for (std::uint64_t tag = 0; tag < kMessages; ++tag)
      EXPECT_TRUE(has_pattern(to[tag].data(), bytes_of(tag), tag)) << tag;
  }
  unsetenv("WEFT_VERBS_QPS");
  unsetenv("WEFT_VERBS_SLOTS");
}

// A device posts part of a chain: none of its messages may count as sent.
TEST_F(VerbsUnkind, AChainThatIsTakenInPartEndsTheConnectionWithItsCause) {
  setenv("WEFT_VERBS_WR", "0", 1);  // ibv_wr_* posts all or nothing
  Net two = net(2);
  pass(two, 0, 1, 1, 100);
  fake_.refuse_after = 2;
  Buffer from(100'000), to(100'000);  // a chain of many requests
  two[0].send(1, 2, from);
  two[1].recv(0, 2, to);
  ASSERT_TRUE(two.until([&] { return two[0].idle(); }));
  EXPECT_FALSE(two[0].all_ok());
  EXPECT_THAT(two[0].transport().cause(1).to_string(), HasSubstr("ibv_post_send"));
  fake_.refuse_after = -1;
  two.settle();
  two[0].give_up(), two[1].give_up();
}

// A message in memory that cannot be registered fails alone; others complete.
TEST_F(VerbsUnkind, AMessageWhoseMemoryCannotBeLockedFailsAlone) {
  Net two = net(2);
  pass(two, 0, 1, 1, 100);
  std::size_t registered = 0;
  for (const FakeVerbs::Region& r : fake_.regions) registered += r.mr.length;
  fake_.most_registered = registered + 10'000;
  Buffer from(100'000), to(100'000);
  two[0].send(1, 2, from);
  two[1].recv(0, 2, to);
  ASSERT_TRUE(two.until([&] { return two[1].idle(); }));
  EXPECT_FALSE(two[1].all_ok());
  EXPECT_THAT(two[1].transport().cause(0).to_string(), HasSubstr("ulimit -l"));
  two[0].give_up(), two[1].give_up();
  fake_.most_registered = SIZE_MAX;
}

// ---- an operation canceled half way -----------------------------------------------------------

// One of two communicators cancels a long message in flight; the messages of the other one still
// arrive, in both directions.
TEST_F(VerbsUnkind, GivingUpOneCommunicatorLeavesThePeerToTheOthers) {
  for (const bool receiver : {false, true}) {
    SCOPED_TRACE(receiver);
    Net two = net(2);
    pass(two, 0, 1, 1, 100);
    Buffer from(3'000'000), to(3'000'000);
    from.fill(2);
    two[0].send(1, 2, from, 7);
    two[1].recv(0, 2, to, 7);
    const auto begun = [&] { return !to.clean(); };
    ASSERT_TRUE(two.until(begun));
    ASSERT_FALSE(two[1].idle()) << "it has arrived as a whole: nothing is tested";
    two[receiver].cancel(7);
    to.wipe();
    from.wipe();
    if (!receiver) two[1].cancel(7);
    pass(two, 0, 1, 3, 100);
    pass(two, 1, 0, 4, 200'000);
    if (receiver) two[0].cancel(7);
    pass(two, 0, 1, 5, 200'000);
    EXPECT_TRUE(two[0].transport().cause(1).ok());
    EXPECT_TRUE(two[1].transport().cause(0).ok());
    EXPECT_TRUE(to.clean() || !receiver);
  }
}

// Two ranks send each other messages of all lengths. Some are canceled at random times: first at
// one end and, some polls later, at the other.
TEST_F(VerbsUnkind, WhatIsNotGivenUpArrivesOnce) {
  for (const int qps : {1, 3}) {
    setenv("WEFT_VERBS_QPS", std::to_string(qps).c_str(), 1);
    setenv("WEFT_VERBS_SLOTS", "4", 1);
    setenv("WEFT_VERBS_WINDOWS", "2", 1);
    for (std::uint32_t seed = 1; seed <= 60; ++seed) {
      SCOPED_TRACE(seed);
      fake_.random.seed(seed);
      std::mt19937 random(seed);
      Net two = net(2);
      std::deque<Buffer> from, to, given_up;
      std::vector<std::size_t> sizes;
      const auto some_polls = [&] {
        for (auto n = random() % 12; n > 0; --n) two[static_cast<Rank>(random() % 2)].poll();
      };
      std::uint64_t tag = 0;
      for (std::uint32_t round = 0; round < 6; ++round) {
        for (int i = 0; i < 8; ++i, ++tag) {
          const auto a = static_cast<Rank>(random() % 2);
          const std::size_t bytes = random() % 2 ? random() % 9'000 : 16'000 + random() % 200'000;
          const bool kept = random() % 2;
          if (kept) sizes.push_back(bytes);
          Buffer& out = (kept ? from : given_up).emplace_back(bytes);
          Buffer& in = (kept ? to : given_up).emplace_back(bytes);
          out.fill(sizes.size());
          const std::uint32_t high = kept ? 1 : 100 + round;
          if (random() % 4 == 0) some_polls();
          two[a].send(1 - a, tag, out, high);
          if (random() % 4 == 0) some_polls();
          two[1 - a].recv(a, tag, in, high);
        }
        some_polls();
        const auto first = static_cast<Rank>(random() % 2);
        two[first].cancel(100 + round);
        some_polls();
        two[1 - first].cancel(100 + round);
        for (Buffer& b : given_up) b.wipe();
      }
      ASSERT_TRUE(two.finish());
      two.settle();
      for (std::size_t i = 0; i < to.size(); ++i)
        ASSERT_TRUE(has_pattern(to[i].data(), sizes[i], i + 1)) << i;
      for (const Buffer& b : given_up) ASSERT_TRUE(b.clean());
    }
  }
  for (const char* variable : {"WEFT_VERBS_QPS", "WEFT_VERBS_SLOTS", "WEFT_VERBS_WINDOWS"})
    unsetenv(variable);
}

// ---- link and memory ---------------------------------------------------------------------------

TEST_F(VerbsUnkind, ALinkThatIsLostEndsWhatIsUnderWay) {
  Net two = net(2);
  pass(two, 0, 1, 1, 100);
  fake_.set_port(false);
  fake_.set_port(true);
  pass(two, 1, 0, 2, 100'000);  // nothing was pending
  Buffer from(3'000'000), to(3'000'000);
  from.fill(3);
  two[0].send(1, 3, from);
  two[1].recv(0, 3, to);
  ASSERT_TRUE(two.until([&] { return !to.clean(); }));
  fake_.set_port(false);
  ASSERT_TRUE(two.until([&] { return two[0].idle(); }));
  EXPECT_FALSE(two[0].all_ok());
  EXPECT_THAT(two[0].transport().cause(1).to_string(), HasSubstr("retry"));
  two[1].give_up();
}

// If another rail can take over, the event of a dead port ends its connections at once.
TEST_F(VerbsUnkind, APortThatIsDownIsNotWaitedForWhereAnotherRailIs) {
  Net two = net(2, true);
  pass(two, 0, 1, 1, 100);
  fake_.set_port(false);
  const auto ended = [&] {
    return !two[0].transport().cause(1).ok() || !two[1].transport().cause(0).ok();
  };
  ASSERT_TRUE(two.until(ended));
}

TEST_F(VerbsUnkind, AMessageOfAPeerThatIsFarAheadWaitsForASlot) {
  constexpr std::size_t kLimit = 2 << 20;
  setenv("WEFT_UNEXPECTED_BYTES", std::to_string(kLimit).c_str(), 1);
  Net two = net(2);
  unsetenv("WEFT_UNEXPECTED_BYTES");
  expect_slowed_not_failed(two, kLimit, 12 << 10, 1000);
}

TEST_F(VerbsUnkind, LateMessagesLeaveNoMemoryBehind) {
  Net two = net(2);
  pass(two, 0, 1, 1, 100);
  const std::size_t regions = fake_.regions.size();
  expect_memory_comes_back(two, 20 << 20, 20);
  expect_memory_comes_back(two, 12 << 10, 8000);
  EXPECT_EQ(fake_.regions.size(), regions);
}

// ---- contracts -----------------------------------------------------------------------------

// A short message is one request with inline data, and one doorbell.
TEST_F(VerbsUnkind, AShortMessageIsOneRequestAndOneDoorbell) {
  Net two = net(2);
  pass(two, 0, 1, 1, 8);
  const FakeVerbs::Counts before = fake_.counts;
  constexpr std::size_t kMessages = 64;
  for (std::uint64_t tag = 2; tag < 2 + kMessages; ++tag) pass(two, 0, 1, tag, 8);
  // A few more acknowledge messages and return receives.
  EXPECT_LE(since(&FakeVerbs::Counts::requests, before), kMessages * 9 / 8);
  EXPECT_LE(since(&FakeVerbs::Counts::doorbells, before), kMessages * 9 / 8);
  EXPECT_GE(since(&FakeVerbs::Counts::inlined, before), kMessages);
  EXPECT_EQ(since(&FakeVerbs::Counts::registrations, before), 0u);
  EXPECT_EQ(since(&FakeVerbs::Counts::pairs, before), 0u);
  // One per arrival, and a few acknowledgements.
  EXPECT_LE(since(&FakeVerbs::Counts::completions, before), kMessages * 5 / 4);
}

// Long messages from user memory pin it only while they are pending.
TEST_F(VerbsUnkind, AfterLongSendsNothingStaysPinned) {
  Net two = net(2);
  pass(two, 0, 1, 1, 100);
  const std::size_t before = fake_.regions.size();
  constexpr std::size_t kSends = 64, kBytes = 100'000;
  std::deque<Buffer> from, to;
  for (std::uint64_t tag = 0; tag < kSends; ++tag) {
    from.emplace_back(kBytes).fill(tag);
    two[0].send(1, tag + 10, from.back());
    two[1].recv(0, tag + 10, to.emplace_back(kBytes));
  }
  ASSERT_TRUE(two.finish());
  for (std::uint64_t tag = 0; tag < kSends; ++tag)
    EXPECT_TRUE(has_pattern(to[tag].data(), kBytes, tag));
  EXPECT_EQ(fake_.regions.size(), before);
}

// Messages of one post() share a doorbell.
TEST_F(VerbsUnkind, MessagesThatArePostedTogetherShareADoorbell) {
  Net two = net(2);
  pass(two, 0, 1, 1, 8);
  const FakeVerbs::Counts before = fake_.counts;
  std::vector<Transfer> batch(16);
  std::uint64_t words[16] = {}, came[16] = {};
  for (std::size_t i = 0; i < batch.size(); ++i)
    batch[i] = {.peer = 1, .tag = 100 + i, .data = &words[i], .bytes = 8, .id = i};
  two[0].transport().post(batch);
  EXPECT_EQ(since(&FakeVerbs::Counts::doorbells, before), 1u);
  for (std::size_t i = 0; i < batch.size(); ++i)
    two[1].post(Transfer::Kind::kRecv, 0, 100 + i, &came[i], 8);
  Completion out[16];
  for (std::size_t n = 0; n < 16;) n += two[0].transport().poll(out);
  ASSERT_TRUE(two.finish());
}

}  // namespace
}  // namespace weft::testing
