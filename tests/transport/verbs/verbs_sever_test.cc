// Recovery of the verbs transport: connections are closed and created again.
// labels: multiproc
// ctest: alone
#include <gtest/gtest.h>

#include <deque>
#include <memory>
#include <string>
#include <vector>

#include "transport/verbs_net.h"

namespace weft::testing {
namespace {

constexpr std::size_t kShort = 300, kSlot = 9000, kLong = 700'000;
constexpr std::size_t kSeverSizes[] = {0, 8, kShort, kSlot, kLong};

class VerbsSever : public OnVerbs {
 protected:
  // Reconnects like rails: the lower rank asks, the higher one is ready first.
  static void open_again(Net& net, Rank low, Rank high) {
    Transport &a = net[low].transport(), &b = net[high].transport();
    const std::string from_low = a.recovery()->reopen(high);
    ASSERT_FALSE(from_low.empty());
    const std::string from_high = b.recovery()->reopen(low);
    ASSERT_FALSE(from_high.empty());
    ASSERT_TRUE(b.recovery()->connect(low, from_low));
    ASSERT_TRUE(a.recovery()->connect(high, from_high));
  }
  // A message of every size, both ways.
  void exchange(Net& net, Rank a, Rank b) {
    struct Message {
      Buffer from, to;
      std::uint64_t tag;
    };
    std::deque<Message> messages;
    for (const std::size_t bytes : kSeverSizes) {
      for (const auto& [from, to] : {std::pair(a, b), std::pair(b, a)}) {
        Message& m = messages.emplace_back(Message{Buffer(bytes), Buffer(bytes), next_tag_++});
        m.from.fill(m.tag);
        net[from].send(to, m.tag, m.from);
        net[to].recv(from, m.tag, m.to);
      }
    }
    ASSERT_TRUE(net.finish());
    for (const Message& m : messages) {
      EXPECT_TRUE(has_pattern(m.to.data(), m.to.bytes(), m.tag));
      EXPECT_TRUE(m.to.guards_intact());
    }
  }
  // Updates the ends' state: pending transfers with the peer will never complete.
  static void disconnect_both(Net& net, Rank a, Rank b, std::uint32_t id_high) {
    net[a].transport().recovery()->disconnect(b);
    net[b].transport().recovery()->disconnect(a);
    net[a].cancel(id_high);
    net[b].cancel(id_high);
  }

  std::uint64_t next_tag_ = 1;
};

TEST_F(VerbsSever, SaysThatItCan) {
  Net both = net(2);
  EXPECT_TRUE(both[0].transport().recovery());
}

// After a disconnection at any time, no pending transfer is written or completes, and later
// messages arrive intact.
TEST_F(VerbsSever, NothingOfBeforeLandsAfterwards) {
  Net both = net(2);
  constexpr std::uint32_t kBefore = 7;
  for (int round = 0; round < 12; ++round) {
    SCOPED_TRACE(round);
    std::deque<Buffer> from, to;
    std::vector<std::uint64_t> tags;
    for (int i = 0; i < 12; ++i) {
      const std::size_t bytes = kSeverSizes[static_cast<std::size_t>(i) % std::size(kSeverSizes)];
      const Rank sender = i % 2;
      tags.push_back(next_tag_++);
      from.emplace_back(bytes).fill(tags.back());
      both[sender].send(1 - sender, tags.back(), from.back(), kBefore);
      // Some have only a send, some only a receive; a long one is half done.
      to.emplace_back(bytes);
      if (i % 3 != 0) both[1 - sender].recv(sender, tags.back(), to.back(), kBefore);
    }
    Buffer waits(kSlot);
    both[0].recv(1, next_tag_++, waits, kBefore);
    for (int i = 0; i < round * 3; ++i) both.poll_all();
    disconnect_both(both, 0, 1, kBefore);
    for (Buffer& b : to) b.wipe();
    for (Buffer& b : from) b.wipe();
    ASSERT_NO_FATAL_FAILURE(open_again(both, 0, 1));
    ASSERT_NO_FATAL_FAILURE(exchange(both, 0, 1));
    both.settle();
    for (const Buffer& b : to) EXPECT_TRUE(b.clean());
    // An old message must not match a new receive.
    Buffer never(kShort);
    both[1].recv(0, tags[2], never, kBefore);
    both.settle();
    EXPECT_TRUE(never.clean());
    both[1].cancel(kBefore);
  }
}

TEST_F(VerbsSever, OtherPeersGoOn) {
  Net three = net(3);
  ASSERT_TRUE(three.connect());
  Buffer from(kLong), to(kLong);
  from.fill(5);
  three[0].send(2, 1000, from);
  for (int i = 0; i < 20; ++i) three.poll_all();
  disconnect_both(three, 0, 1, 99);
  three[2].recv(0, 1000, to);
  ASSERT_TRUE(three.finish());
  EXPECT_TRUE(has_pattern(to.data(), kLong, 5));
  exchange(three, 1, 2);
  // Until it is reconnected, transfers fail with the cause.
  Buffer one(8);
  three[0].send(1, 2000, one);
  ASSERT_TRUE(three.until([&] { return three[0].idle(); }));
  EXPECT_FALSE(three[0].all_ok());
  EXPECT_FALSE(three[0].transport().cause(1).ok());
  open_again(three, 0, 1);
  EXPECT_TRUE(three[0].transport().cause(1).ok());
}

// A failed attempt does not prevent another one.
TEST_F(VerbsSever, MayBeOpenedSeveralTimes) {
  Net both = net(2);
  exchange(both, 0, 1);
  disconnect_both(both, 0, 1, 99);
  for (int i = 0; i < 5; ++i) {
    EXPECT_FALSE(both[0].transport().recovery()->reopen(1).empty());
    EXPECT_FALSE(both[1].transport().recovery()->reopen(0).empty());
  }
  EXPECT_FALSE(both[0].transport().recovery()->connect(1, ""));
  EXPECT_FALSE(both[0].transport().recovery()->connect(1, std::string(200, 'x')));
  open_again(both, 0, 1);
  exchange(both, 0, 1);
}

// The peer has disconnected without notifying this rank: the sends of this rank detect it.
TEST_F(VerbsSever, AnEndThatOnlyOneKnowsShows) {
  Net both = net(2);
  exchange(both, 0, 1);
  both[1].transport().recovery()->disconnect(0);
  Buffer data(kShort);
  both[0].send(1, 5000, data);
  const auto failed = [&] { return !both[0].transport().cause(1).ok(); };
  ASSERT_TRUE(both.until(failed));
  EXPECT_EQ(both[0].transport().cause(1).code(), Code::kPeerFailed);
  both[0].transport().recovery()->disconnect(1);
  both[0].give_up();
  open_again(both, 0, 1);
  EXPECT_TRUE(both[0].transport().cause(1).ok());
}

}  // namespace
}  // namespace weft::testing
