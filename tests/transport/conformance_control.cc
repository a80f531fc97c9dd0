// Conformance except data: cancellation, dead peers, unusual spans, boards, sleeping.
#include <gtest/gtest.h>
#include <poll.h>

#include <deque>
#include <memory>
#include <numeric>
#include <tuple>
#include <vector>

#include "transport/conformance.h"

namespace weft::testing {

TEST_P(Conformance, CapsHaveAName) {
  Net net = make(2);
  EXPECT_FALSE(net[0].caps().name.empty());
  if (net[0].transport().views()) {
    EXPECT_GT(net[0].caps().max_view, 0u);
  }
  EXPECT_TRUE(net[0].transport().cause(1).ok());
}

// The peer stops polling, so a call that waits for it would never return: with all buffers full,
// with messages half sent, and finally disconnected.
TEST_P(Conformance, NoCallWaitsForAPeerThatDoesNotPoll) {
  Net net = make(2);
  ASSERT_TRUE(net.connect());
  End& end = net[0];
  Transport& transport = end.transport();
  std::deque<Buffer> buffers;
  std::uint64_t tag = 0;
  for (int round = 0; round < 40; ++round) {
    for (const std::size_t bytes : {8, 3000, 300000}) {
      end.send(1, ++tag, buffers.emplace_back(bytes), 7);
      end.recv(1, tag, buffers.emplace_back(bytes), 7);
    }
    end.poll();
  }
  Head theirs;
  std::vector<int> fds;
  EXPECT_EQ(transport.unexpected(1, 1, ~std::uint64_t{0}, theirs), kNoRank);
  EXPECT_FALSE(transport.disputed(1, theirs));
  EXPECT_TRUE(transport.cause(1).ok());
  transport.forget(1, ~std::uint64_t{0});
  (void)transport.moved_bytes();
  (void)transport.arm(fds);
  transport.before_pause();
  end.poll();
  end.cancel(7);
  end.poll();
  EXPECT_TRUE(end.idle());
  if (!transport.recovery()) return;
  transport.recovery()->disconnect(1);
  (void)transport.recovery()->reopen(1);
  end.poll();
}

TEST_P(Conformance, ACancelledReceiveIsForgotten) {
  for (const std::size_t bytes : {8, 3000, 300000}) {
    SCOPED_TRACE(::testing::Message() << bytes << " bytes");
    Net net = make(2);
    Buffer given_up(bytes), stays(bytes), later(bytes), from(bytes);
    from.fill(1);
    net[1].recv(0, 1, given_up, 7);
    net[1].recv(0, 2, stays, 8);
    net.settle();
    net[1].cancel(7);
    net[0].send(1, 1, from, 9);  // canceled on the receiver; whether it completes is open
    net[0].send(1, 2, from, 8);
    net[0].send(1, 3, from, 8);
    net.settle();
    const std::uint64_t last = net[1].recv(0, 3, later, 10);
    ASSERT_TRUE(net.until([&] { return net[1].done(last) && net[1].idle(); }));
    net.settle();
    EXPECT_TRUE(given_up.clean());
    EXPECT_TRUE(given_up.guards_intact());
    if (!net.phantom()) {
      EXPECT_TRUE(has_pattern(stays.data(), bytes, 1));
      EXPECT_TRUE(has_pattern(later.data(), bytes, 1));
    }
    net[0].cancel(9);
    EXPECT_TRUE(net[1].all_ok());
  }
}

// Rails cancels a receive whenever its message arrives over another rail; tags are reused
// afterwards.
TEST_P(Conformance, ATagMayBeUsedAgainWhenItsReceiveWasGivenUp) {
  for (const std::size_t bytes : {8, 3000, 300000}) {
    SCOPED_TRACE(::testing::Message() << bytes << " bytes");
    Buffer given_up(bytes), from(bytes), to(bytes);
    Net net = make(2);
    net[1].recv(0, 1, given_up, 7);
    net.settle();
    net[1].cancel(7);
    net.settle();
    from.fill(1);
    net[0].send(1, 1, from, 8);
    net.settle();
    net[1].recv(0, 1, to, 8);
    ASSERT_TRUE(net.finish());
    EXPECT_TRUE(given_up.clean());
    if (!net.phantom()) {
      EXPECT_TRUE(has_pattern(to.data(), bytes, 1));
    }
  }
}

// Cancellation also drops messages in flight and unpolled completions; End::poll fails on their
// completion.
TEST_P(Conformance, ACancelledCompletionIsNotReported) {
  std::deque<Buffer> sources;  // outlive the transports: the sends are not waited for
  Net net = make(2);
  ASSERT_TRUE(net.connect());
  for (std::uint64_t i = 1; i <= 20; ++i) {
    const std::size_t bytes = i % 2 ? 16 : 5000;
    Buffer to(bytes);
    const auto high = static_cast<std::uint32_t>(100 + i);
    net[1].recv(0, i, to, high);
    net[0].send(1, i, sources.emplace_back(bytes), 1);
    for (std::uint64_t k = 0; k < (i < 10 ? i : 50); ++k) {  // in flight, or arrived
      net[0].poll();
      net[1].transport().poll({});
      if (net.endpoints().idle) net.endpoints().idle();
    }
    net[1].cancel(high);
    to.wipe();
    net.settle();
    EXPECT_TRUE(to.clean());
  }
}

// A canceled send never completes, and its buffer is not read afterwards (it is freed).
TEST_P(Conformance, ACancelledSendIsForgotten) {
  for (const Memory memory : {Memory::kMalloc, Memory::kAlloc}) {
    for (const std::size_t bytes : {8, 3000, 300000}) {
      SCOPED_TRACE(::testing::Message() << bytes << " bytes");
      Net net = make(2);
      Buffer to(bytes), to2(bytes), from2(bytes);
      ASSERT_TRUE(net.connect());
      Buffer late(bytes);
      const std::uint64_t early = net[1].recv(0, 4, late, 7);
      {
        Buffer from(bytes, memory), matched(bytes, memory);
        from.fill(1);
        matched.fill(4);
        net[0].send(1, 1, from, 7);
        net.settle();
        net[0].send(1, 4, matched, 7);  // matches its receive, and is in flight
        net[0].cancel(7);
        from.fill(999);
        matched.fill(999);
      }
      to.wipe();
      const std::uint64_t got = net[1].recv(0, 1, to, 7);
      net.settle();
      // The receives may get the messages or errors, but no other bytes.
      for (const auto& [id, buffer, seed] : {std::tuple{got, &to, 1u}, {early, &late, 4u}}) {
        if (!net.phantom() && net[1].done(id) && net[1].result(id).code == Code::kOk) {
          EXPECT_TRUE(has_pattern(buffer->data(), bytes, seed));
        }
      }
      net[1].cancel(7);
      if (!net[0].transport().cause(1).ok() || !net[1].transport().cause(0).ok()) {
        continue;  // releasing the buffer closed the connection, which both sides detect
      }
      from2.fill(2);
      const std::uint64_t s = net[0].send(1, 2, from2);
      const std::uint64_t r = net[1].recv(0, 2, to2);
      ASSERT_TRUE(net.until([&] { return net[0].done(s) && net[1].done(r); }));
      if (!net.phantom() && net[1].result(r).code == Code::kOk) {
        EXPECT_TRUE(has_pattern(to2.data(), bytes, 2));
      }
    }
  }
}

TEST_P(Conformance, TransfersWithADeadPeerFailAndSayWhy) {
  Net net = make(3);
  if (!net.endpoints().kill) GTEST_SKIP() << "missing capability: killing a rank in one process";
  Buffer small(64), large(1 << 20), to(64);
  const std::uint64_t recv = net[0].recv(2, 1, to);
  const std::uint64_t send = net[1].send(2, 1, large);
  net.endpoints().kill(2);
  ASSERT_TRUE(net.until([&] { return net[0].done(recv) && net[1].done(send); }));
  EXPECT_NE(net[0].result(recv).code, Code::kOk);
  EXPECT_NE(net[1].result(send).code, Code::kOk);
  for (const Rank r : {0, 1}) {
    const Status why = net[r].transport().cause(2);
    EXPECT_EQ(why.code(), Code::kPeerFailed);
    EXPECT_EQ(why.rank(), 2);
    EXPECT_FALSE(why.message().empty());
  }
  const std::uint64_t again = net[0].send(2, 2, small);
  ASSERT_TRUE(net.until([&] { return net[0].done(again); }));
  EXPECT_NE(net[0].result(again).code, Code::kOk);
  // The surviving ranks continue.
  EXPECT_TRUE(net[0].transport().cause(1).ok());
  small.fill(3);
  net[0].send(1, 3, small);
  const std::uint64_t got = net[1].recv(0, 3, to);
  ASSERT_TRUE(net.until([&] { return net[0].idle() && net[1].idle(); }));
  EXPECT_EQ(net[1].result(got).code, Code::kOk);
}

TEST_P(Conformance, EmptySpansAndRoomForOne) {
  Net net = make(2);
  std::deque<Buffer> from, to;
  net[0].transport().post({});
  EXPECT_EQ(net[0].transport().poll({}), 0u);
  for (std::uint64_t i = 0; i < 50; ++i) {
    from.emplace_back(i * 100).fill(i);
    to.emplace_back(i * 100);
    net[0].send(1, i, from[i]);
    net[1].recv(0, i, to[i]);
  }
  for (int k = 0; k < 20; ++k) {
    EXPECT_EQ(net[1].transport().poll({}), 0u);
    net[0].poll(1);
  }
  ASSERT_TRUE(net.finish(1));
  for (std::uint64_t i = 0; i < 50 && !net.phantom(); ++i) {
    ASSERT_TRUE(has_pattern(to[i].data(), to[i].bytes(), i));
  }
}

TEST_P(Conformance, BoardsKeepTwoRounds) {
  constexpr int kRanks = 3;
  Net net = make(kRanks);
  std::vector<Rank> members(kRanks);
  std::iota(members.begin(), members.end(), 0);
  std::vector<std::unique_ptr<Board>> boards;
  if (!net[0].transport().boards()) GTEST_SKIP() << "missing capability: board";
  for (Rank r = 0; r < kRanks; ++r)
    boards.push_back(net[r].transport().boards()->fixed(members, 0));
  ASSERT_NE(boards[0], nullptr);
  const std::size_t room = boards[0]->capacity();
  ASSERT_GT(room, 0u);
  for (std::uint32_t round = 1; round <= 100; ++round) {
    const std::size_t bytes = round % (room + 1);
    for (Rank r = 0; r < kRanks; ++r) {
      if (r > 0) {
        EXPECT_EQ(boards[0]->read(r, round), nullptr);
      }
      Buffer b(bytes);
      b.fill(round * 8 + static_cast<unsigned>(r));
      boards[static_cast<std::size_t>(r)]->publish(round, b.data(), bytes, head(round));
    }
    for (Rank r = 0; r < kRanks; ++r) {
      const void* all[kRanks];
      ASSERT_EQ(boards[static_cast<std::size_t>(r)]->collect(round, head(round).sign, all), -1);
      for (Rank from = 0; from < kRanks; ++from) {
        ASSERT_EQ(all[from], boards[static_cast<std::size_t>(r)]->read(from, round));
        // This round's message, and the previous one, which a slow reader may still read.
        for (std::uint32_t k = round; k > 0 && k + 2 > round; --k) {
          const void* p = boards[static_cast<std::size_t>(r)]->read(from, k);
          ASSERT_NE(p, nullptr) << "round " << k << " of " << round << ", member " << from;
          ASSERT_TRUE(has_pattern(p, k % (room + 1), k * 8 + static_cast<unsigned>(from)));
        }
      }
    }
  }
}

TEST_P(Conformance, BoardsTellWhoDisagrees) {
  constexpr int kRanks = 3;
  Net net = make(kRanks);
  std::vector<Rank> members(kRanks);
  std::iota(members.begin(), members.end(), 0);
  std::vector<std::unique_ptr<Board>> boards;
  if (!net[0].transport().boards()) GTEST_SKIP() << "missing capability: board";
  for (Rank r = 0; r < kRanks; ++r)
    boards.push_back(net[r].transport().boards()->fixed(members, 0));
  ASSERT_NE(boards[0], nullptr);
  Buffer b(boards[0]->capacity());  // a full message does not touch the head
  for (std::uint32_t round = 1; round <= 3; ++round) {
    b.fill(round);
    for (std::uint32_t r = 0; r < kRanks; ++r)
      boards[r]->publish(round, b.data(), b.bytes(), head(round == 2 && r == 1 ? 77 : round));
    const void* all[kRanks];
    EXPECT_EQ(boards[0]->collect(round, head(round).sign, all), round == 2 ? 1 : -1);
    EXPECT_EQ(boards[1]->collect(round, head(round == 2 ? 77 : round).sign, all),
              round == 2 ? 0 : -1);
    EXPECT_EQ(boards[2]->collect(round, head(round).sign, all), round == 2 ? 1 : -1);
    for (const void* at : all) EXPECT_TRUE(has_pattern(at, b.bytes(), round));
    EXPECT_TRUE(same(boards[2]->head(1, round), head(round == 2 ? 77 : round)));
    EXPECT_TRUE(same(boards[1]->head(2, round), head(round)));
  }
}

// A rank may sleep until an event: no wake-up is lost.
TEST_P(Conformance, AnArmedTransportWakesUp) {
  Net net = make(2);
  for (std::uint64_t i = 1; i <= 20; ++i) {
    Buffer from(100), to(100);
    const std::uint64_t got = net[1].recv(0, i, to);
    std::vector<int> fds;
    ASSERT_TRUE(net.until([&] {
      fds.clear();
      return net[1].transport().arm(fds);
    }));
    if (fds.empty()) {
      net[1].cancel(1);
      GTEST_SKIP() << "missing capability: file descriptors to wait on";
    }
    net[0].send(1, i, from);
    const auto deadline = std::chrono::steady_clock::now() + kDeadline;
    while (!net[1].done(got)) {
      ASSERT_LT(std::chrono::steady_clock::now(), deadline);
      net[0].poll();
      std::vector<pollfd> waits;
      for (const int fd : fds) waits.push_back({fd, POLLIN, 0});
      // The peer must be polled, too, so the sleep is short; but only a wake-up may end the wait.
      if (::poll(waits.data(), waits.size(), 1) == 0) continue;
      do {
        net[1].poll();
        fds.clear();
      } while (!net[1].done(got) && !net[1].transport().arm(fds));
    }
    ASSERT_TRUE(net.finish());
  }
}

}  // namespace weft::testing
