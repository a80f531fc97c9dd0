// Conformance of heads, which accompany the bytes of a message and end a receive that expects a
// different head.
#include <gtest/gtest.h>

#include <deque>
#include <utility>

#include "transport/conformance.h"

namespace weft::testing {

constexpr std::size_t kHeadSizes[] = {0, 8, 40, 48, 256, 257, 5000, 70000, 1u << 20};

TEST_P(Conformance, HeadsThatAgreeChangeNothing) {
  Net net = make(2);
  std::uint64_t tag = 1;
  for (const Memory memory : {Memory::kMalloc, Memory::kAlloc})
    for (const std::size_t bytes : kHeadSizes)
      for (const bool view : {false, true})
        for (const bool send_first : {true, false}) {
          if (view && (!net[1].transport().views() || bytes > net[1].caps().max_view)) continue;
          SCOPED_TRACE(::testing::Message() << bytes << " bytes" << (view ? ", view" : ""));
          const Head both = head(tag), also = head(tag);
          Buffer from(bytes, memory), to(bytes);
          from.fill(tag);
          const auto send = [&] {
            net[0].post_with_head(Transfer::Kind::kSend, 1, tag, from.data(), bytes, both);
          };
          if (send_first) send();
          if (send_first) net.settle();
          const std::uint64_t got = net[1].post_with_head(
              view ? Transfer::Kind::kView : Transfer::Kind::kRecv, 0, tag, to.data(), bytes, also);
          if (!send_first) net.settle();
          if (!send_first) send();
          ASSERT_TRUE(net.until([&] { return net[1].done(got); }));
          const Completion& c = net[1].result(got);
          ASSERT_EQ(c.code, Code::kOk);
          if (!net.phantom() && bytes) {
            ASSERT_TRUE(has_pattern(view ? c.view : to.data(), bytes, tag));
          }
          if (view) net[1].transport().views()->release(c.token);
          ASSERT_TRUE(net.finish());
          ASSERT_TRUE(to.guards_intact());
          ++tag;
        }
}

// For all sizes, the receiver gets the sender's head.
TEST_P(Conformance, HeadsThatDifferEndTheReceive) {
  std::deque<Buffer> sources;  // outlive the transports: the sends are not waited for
  for (const std::size_t sent : {8, 4096, 70000})
    for (const std::size_t expected : {8, 4096, 70000})
      for (const bool view : {false, true})
        for (const bool send_first : {true, false}) {
          Net net = make(2);
          if (view && !net[1].transport().views()) continue;
          SCOPED_TRACE(::testing::Message()
                       << sent << " bytes where " << expected << " are expected"
                       << (view ? ", view" : "") << (send_first ? ", send first" : ""));
          ASSERT_TRUE(net.connect());
          const Head theirs = head(7), mine = head(8);
          Buffer& from = sources.emplace_back(sent);
          Buffer to(expected);
          const auto send = [&] {
            net[0].post_with_head(Transfer::Kind::kSend, 1, 5, from.data(), sent, theirs, 2);
          };
          if (send_first) send();
          if (send_first) net.settle();
          const auto got =
              net[1].post_with_head(view ? Transfer::Kind::kView : Transfer::Kind::kRecv, 0, 5,
                                    to.data(), expected, mine);
          net.settle();
          if (!send_first) send();
          ASSERT_TRUE(net.until([&] { return net[1].done(got); }));
          EXPECT_EQ(net[1].result(got).code, Code::kMismatch);
          EXPECT_TRUE(to.guards_intact());
          EXPECT_FALSE(net[1].transport().cause(0).ok());
          Head found;
          ASSERT_TRUE(net[1].transport().disputed(0, found));
          EXPECT_TRUE(same(found, theirs));
          net[0].cancel(2);
        }
}

// A shorter message must not complete the receive, and a longer one must not overflow it.
TEST_P(Conformance, SizesThatDifferEndTheReceiveUnderTheSameHead) {
  std::deque<Buffer> sources;  // outlive the transports: the sends are not waited for
  using Sizes = std::pair<std::size_t, std::size_t>;
  for (const auto& [sent, expected] : {Sizes{8, 4096}, {4096, 8}, {0, 8}, {4096, 70000}})
    for (const bool send_first : {true, false}) {
      SCOPED_TRACE(::testing::Message() << sent << " bytes where " << expected << " are expected"
                                        << (send_first ? ", send first" : ""));
      Net net = make(2);
      ASSERT_TRUE(net.connect());
      const Head both = head(7), also = head(7);
      Buffer& from = sources.emplace_back(sent);
      Buffer to(expected);
      const auto send = [&, bytes = from.bytes()] {
        net[0].post_with_head(Transfer::Kind::kSend, 1, 5, from.data(), bytes, both, 2);
      };
      if (send_first) send();
      if (send_first) net.settle();
      const auto got =
          net[1].post_with_head(Transfer::Kind::kRecv, 0, 5, to.data(), to.bytes(), also);
      net.settle();
      if (!send_first) send();
      ASSERT_TRUE(net.until([&] { return net[1].done(got); }));
      EXPECT_EQ(net[1].result(got).code, Code::kMismatch);
      EXPECT_TRUE(to.guards_intact());
      EXPECT_FALSE(net[1].transport().cause(0).ok());
      net[0].cancel(2);
    }
}

TEST_P(Conformance, UnclaimedHeadsAreSeenAndStay) {
  Net net = make(2);
  constexpr std::uint64_t kMask = ~std::uint64_t{0xff};
  std::uint64_t tag = 0x100;
  for (const std::size_t bytes : {0, 8, 5000, 70000}) {
    SCOPED_TRACE(::testing::Message() << bytes << " bytes");
    Head seen;
    const auto unexpected = [&](Rank peer, std::uint64_t of) {
      return net[1].transport().unexpected(peer, of, kMask, seen);
    };
    EXPECT_EQ(unexpected(0, tag), kNoRank);
    const Head one = head(tag);
    std::deque<Buffer> from, to;
    for (std::uint64_t i = 0; i < 12; ++i) {  // the last one only has a head
      from.emplace_back(bytes).fill(tag + i);
      if (i < 11)
        net[0].send(1, tag + i, from.back());
      else
        net[0].post_with_head(Transfer::Kind::kSend, 1, tag + i, from.back().data(), bytes, one);
    }
    ASSERT_TRUE(net.until([&] { return unexpected(0, tag) == 0; }));
    EXPECT_TRUE(same(seen, one));
    EXPECT_EQ(unexpected(0, tag + 0x100), kNoRank);
    EXPECT_EQ(unexpected(kNoRank, tag), 0) << "it is still there";
    EXPECT_TRUE(same(seen, one));
    for (std::uint64_t i = 12; i-- > 0;) {
      to.emplace_back(bytes);
      if (i < 11)
        net[1].recv(0, tag + i, to.back());
      else
        net[1].post_with_head(Transfer::Kind::kRecv, 0, tag + i, to.back().data(), bytes, one);
    }
    ASSERT_TRUE(net.finish());
    for (std::uint64_t i = 0; i < 12 && !net.phantom(); ++i) {
      ASSERT_TRUE(has_pattern(to[11 - i].data(), bytes, tag + i));
    }
    EXPECT_EQ(unexpected(0, tag), kNoRank);
    tag += 0x100;
  }
}

}  // namespace weft::testing
