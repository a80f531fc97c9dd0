// Conformance of data: every size arrives intact, in every order.
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <deque>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "transport/conformance.h"

namespace weft::testing {

constexpr std::size_t kSizes[] = {
    0, 1, 7, 8, 31, 40, 48, 63, 64, 65, 1000, 4096, 65536, (1u << 20) + 3u, 16u << 20};

// Every size in both orders of posting and both kinds of memory, with alternating alignments; short
// messages with every alignment.
TEST_P(Conformance, BytesArriveExactly) {
  Net net = make(2);
  std::uint64_t tag = 1, turn = 0;
  for (const Memory memory : {Memory::kMalloc, Memory::kAlloc}) {
    for (const std::size_t bytes : kSizes) {
      for (const std::size_t offset : {0, 1, 3, 8}) {
        if (bytes >= 65536 && turn++ % 3 != 0) continue;
        for (const bool send_first : {true, false}) {
          SCOPED_TRACE(::testing::Message() << bytes << " bytes, offset " << offset
                                            << (memory == Memory::kAlloc ? ", alloc" : ", malloc")
                                            << (send_first ? ", send first" : ", recv first"));
          Buffer from(bytes, memory, offset);
          Buffer to(bytes, memory, offset == 3 ? 0 : offset);
          from.fill(tag);
          const bool streaming = offset == 8;
          const auto send = [&] {
            net[0].post(Kind::kSend, 1, tag, from.data(), bytes, 1, streaming);
          };
          if (send_first) send();
          if (send_first) net.settle();
          net[1].post(Kind::kRecv, 0, tag, to.data(), bytes, 1, streaming);
          if (!send_first) net.settle();
          if (!send_first) send();
          ASSERT_TRUE(net.finish());
          if (!net.phantom()) {
            ASSERT_TRUE(has_pattern(to.data(), bytes, tag));
          }
          ASSERT_TRUE(to.guards_intact());
          ++tag;
        }
      }
    }
  }
}

TEST_P(Conformance, TagsMatchWhateverTheOrder) {
  Net net = make(2);
  constexpr int kCount = 300;
  constexpr std::uint64_t kHigh = std::uint64_t{0xffff} << 32;  // the caller may use all 48 bits
  std::deque<Buffer> from, to;
  for (std::uint64_t i = 0; i < kCount; ++i) {
    const std::size_t bytes = i % 10 == 0 ? 100000 : i * 37 % 5000;
    from.emplace_back(bytes, i % 2 ? Memory::kAlloc : Memory::kMalloc).fill(i);
    to.emplace_back(bytes);
    net[0].send(1, kHigh + i, from.back());
  }
  net.settle();
  for (std::uint64_t i = kCount; i-- > 0;) net[1].recv(0, kHigh + i, to[i]);
  ASSERT_TRUE(net.finish());
  for (std::uint64_t i = 0; i < kCount && !net.phantom(); ++i) {
    ASSERT_TRUE(has_pattern(to[i].data(), to[i].bytes(), i));
  }
}

// A thousand concurrent messages in each direction.
TEST_P(Conformance, ThousandsInFlight) {
  Net net = make(2);
  constexpr std::uint64_t kCount = 1000;
  for (const std::size_t bytes : {8, 200, 9000}) {
    std::deque<Buffer> from[2], to[2];
    for (std::uint64_t i = 0; i < kCount; ++i) {
      for (const Rank r : {0, 1}) {
        from[r].emplace_back(bytes).fill(2 * i + static_cast<std::uint64_t>(r));
        to[r].emplace_back(bytes);
        net[r].send(1 - r, i, from[r].back());
        if (i % 3 == 0) net[r].poll();
      }
    }
    for (std::uint64_t i = 0; i < kCount; ++i) {
      for (const Rank r : {0, 1}) net[r].recv(1 - r, i, to[r][i]);
    }
    ASSERT_TRUE(net.finish());
    for (std::uint64_t i = 0; i < kCount && !net.phantom(); ++i) {
      for (const std::uint64_t r : {0, 1}) {
        ASSERT_TRUE(has_pattern(to[r][i].data(), bytes, 2 * i + 1 - r));
      }
    }
  }
}

TEST_P(Conformance, OneMayWaitWhileManyPass) {
  Net net = make(2);
  for (const std::size_t bytes : {8, 3000}) {
    Buffer waits(bytes), waited(bytes), from(bytes), to(bytes);
    waits.fill(1);
    net[0].send(1, 5000, waits);
    for (std::uint64_t i = 0; i < 1000; ++i) {
      const std::uint64_t sent = net[0].send(1, i, from), got = net[1].recv(0, i, to);
      ASSERT_TRUE(net.until([&] { return net[0].done(sent) && net[1].done(got); })) << i;
    }
    net[1].recv(0, 5000, waited);
    ASSERT_TRUE(net.finish());
    if (!net.phantom()) {
      EXPECT_TRUE(has_pattern(waited.data(), bytes, 1));
    }
  }
}

TEST_P(Conformance, AllToAll) {
  for (const int n : {2, 3, 5}) {
    Net net = make(n);
    std::uint64_t tag = 1;
    for (const std::size_t bytes : {16, 3000, 70000, 400000}) {
      std::deque<Buffer> from, to;
      for (Rank a = 0; a < n; ++a) {
        for (Rank b = 0; b < n; ++b) {
          const auto seed = static_cast<std::uint64_t>(a * 100 + b);
          from.emplace_back(bytes, b % 2 ? Memory::kAlloc : Memory::kMalloc).fill(seed);
          to.emplace_back(bytes);
          if (a == b) continue;
          net[a].send(b, tag, from.back());
          net[b].recv(a, tag, to.back());
        }
      }
      ASSERT_TRUE(net.finish()) << n << " endpoints, " << bytes << " bytes";
      for (Rank a = 0; a < n && !net.phantom(); ++a) {
        for (Rank b = 0; b < n; ++b) {
          if (a == b) continue;
          const Buffer& got = to[static_cast<std::size_t>(a * n + b)];
          ASSERT_TRUE(has_pattern(got.data(), bytes, static_cast<std::uint64_t>(a * 100 + b)));
        }
      }
      ++tag;
    }
  }
}

TEST_P(Conformance, ATagMayBeUsedAgainWhenItsMessageIsOver) {
  Net net = make(2);
  for (std::uint64_t i = 0; i < 200; ++i) {
    const std::size_t bytes = i % 4 == 0 ? 70000 : i % 4 * 20;
    Buffer from(bytes), to(bytes);
    from.fill(i);
    if (i % 2) net[0].send(1, 5, from);
    net[1].recv(0, 5, to);
    if (i % 2 == 0) net[0].send(1, 5, from);
    ASSERT_TRUE(net.finish());
    if (!net.phantom()) {
      ASSERT_TRUE(has_pattern(to.data(), bytes, i));
    }
  }
}

// After a send completes, the caller may overwrite its buffer, whether or not the receive is
// posted.
TEST_P(Conformance, ACompletedSendsBufferMayBeRewritten) {
  Net net = make(2);
  std::uint64_t tag = 1;
  for (const Memory memory : {Memory::kMalloc, Memory::kAlloc}) {
    for (const std::size_t bytes : {8, 48, 4096, 65536, 1 << 20}) {
      Buffer from(bytes, memory), to(bytes);
      from.fill(tag);
      const std::uint64_t sent = net[0].send(1, tag, from);
      net.settle();
      const bool early = net[0].done(sent);
      if (early) from.fill(999);
      net[1].recv(0, tag, to);
      ASSERT_TRUE(net.until([&] { return net[0].done(sent); }));
      if (!early) from.fill(999);
      ASSERT_TRUE(net.finish());
      if (!net.phantom()) {
        ASSERT_TRUE(has_pattern(to.data(), bytes, tag)) << bytes;
      }
      ++tag;
    }
  }
}

TEST_P(Conformance, ViewsAreLentUntilReleased) {
  Net net = make(2);
  if (!net[0].transport().views()) GTEST_SKIP() << "missing capability: views";
  std::uint64_t tag = 1;
  for (const Memory memory : {Memory::kMalloc, Memory::kAlloc}) {
    for (const std::size_t size : {0, 8, 48, 1000, 4096, 100000, 1 << 20}) {
      const std::size_t bytes = std::min(size, net[0].caps().max_view);
      SCOPED_TRACE(::testing::Message() << bytes << " bytes");
      constexpr std::uint64_t kLent = 4;
      const std::uint64_t first = tag;
      std::deque<Buffer> from;
      std::vector<std::uint64_t> sent, lent;
      // Two views posted before the messages arrive, two after.
      for (std::uint64_t i = 0; i < 2; ++i) {
        lent.push_back(net[1].post(Kind::kView, 0, first + i, nullptr, bytes));
      }
      for (std::uint64_t i = 0; i < kLent; ++i) {
        from.emplace_back(bytes, memory).fill(first + i);
        sent.push_back(net[0].send(1, first + i, from[i]));
      }
      net.settle();
      for (std::uint64_t i = 2; i < kLent; ++i) {
        lent.push_back(net[1].post(Kind::kView, 0, first + i, nullptr, bytes));
      }
      ASSERT_TRUE(net.until([&] { return net[1].idle(); }));
      const auto check = [&](std::uint64_t i) {
        const Completion& c = net[1].result(lent[i]);
        ASSERT_EQ(c.code, Code::kOk);
        if (net.phantom()) {
          ASSERT_EQ(c.view, nullptr);
        } else if (bytes > 0) {
          ASSERT_NE(c.view, nullptr);
          ASSERT_TRUE(has_pattern(c.view, bytes, first + i));
        }
      };
      for (std::uint64_t i = 0; i < kLent; ++i) check(i);
      // Meanwhile other messages pass, and buffers of completed sends are reused.
      tag += kLent;
      std::deque<Buffer> others;
      for (int i = 0; i < 60; ++i, ++tag) {
        others.emplace_back(2000).fill(tag);
        Buffer to(2000);
        net[0].send(1, tag, others.back());  // may complete only after earlier views are released
        const std::uint64_t got = net[1].recv(0, tag, to);
        ASSERT_TRUE(net.until([&] { return net[1].done(got); }));
        if (!net.phantom()) {
          ASSERT_TRUE(has_pattern(to.data(), 2000, tag));
        }
      }
      for (std::uint64_t i = 0; i < kLent; ++i) {
        if (net[0].done(sent[i])) from[i].fill(999);
      }
      for (const std::uint64_t i : {2, 0, 3, 1}) {  // in no particular order
        check(i);
        net[1].transport().views()->release(net[1].result(lent[i]).token);
      }
      ASSERT_TRUE(net.finish());
    }
  }
}

TEST_P(Conformance, StagedMemoryIsSentFromWhereItIs) {
  Net net = make(3);
  Staging* const staging = net[0].transport().staging();
  for (const std::size_t bytes : {40, 4000, 60000}) {
    if (!staging) GTEST_SKIP() << "missing capability: staged memory";
    for (std::uint64_t i = 1; i <= 300; ++i) {  // more often than staged memory can hold
      Buffer source(bytes), to(bytes);
      source.fill(i);
      void* staged = nullptr;  // temporarily null if no staged memory is free
      ASSERT_TRUE(net.until([&] { return (staged = staging->stage(bytes)) != nullptr; }))
          << "round " << i;
      std::memcpy(staged, source.data(), bytes);
      net[0].post(Kind::kSend, 1, i, staged, bytes);
      net[0].post(Kind::kSend, 2, i, staged, bytes);
      staging->unstage(staged);  // the memory of posted sends stays valid
      net[1].recv(0, i, to);
      const bool views = net[2].transport().views() && bytes <= net[2].caps().max_view;
      Buffer to2(bytes);
      const auto id = net[2].post(views ? Kind::kView : Kind::kRecv, 0, i, to2.data(), bytes);
      ASSERT_TRUE(net.until([&] { return net[1].idle() && net[2].idle(); }));
      ASSERT_TRUE(has_pattern(to.data(), bytes, i));
      const Completion& c = net[2].result(id);
      ASSERT_EQ(c.code, Code::kOk);
      ASSERT_TRUE(has_pattern(views ? c.view : to2.data(), bytes, i));
      if (views) net[2].transport().views()->release(c.token);
      ASSERT_TRUE(net.finish());
    }
  }
}

// Random operations by seed. The transport may send a staged message after unstage(), if the
// message waits in a queue.
TEST_P(Conformance, StagedMemoryOutlivesTheLoanWhileItWaits) {
  Net net = make(2);
  constexpr std::size_t kBytes = 60000;
  constexpr std::uint64_t kBefore = 400;
  Staging* const staging = net[0].transport().staging();
  if (!staging) GTEST_SKIP() << "missing capability: staged memory";
  void* const staged = staging->stage(kBytes);
  Buffer source(kBytes), to(kBytes);
  source.fill(7);
  std::memcpy(staged, source.data(), kBytes);
  std::deque<Buffer> from, into;
  for (std::uint64_t i = 1; i <= kBefore; ++i) {
    from.emplace_back(kBytes).fill(100 + i);
    net[0].send(1, i, from.back());
  }
  net[0].post(Kind::kSend, 1, kBefore + 1, staged, kBytes);
  staging->unstage(staged);
  for (std::uint64_t i = 1; i <= kBefore; ++i) net[1].recv(0, i, into.emplace_back(kBytes));
  net[1].recv(0, kBefore + 1, to);
  ASSERT_TRUE(net.until([&] { return net[0].idle() && net[1].idle(); }));
  for (std::uint64_t i = 1; i <= kBefore; ++i)
    ASSERT_TRUE(has_pattern(into[i - 1].data(), kBytes, 100 + i)) << "message " << i;
  ASSERT_TRUE(has_pattern(to.data(), kBytes, 7));
  ASSERT_TRUE(net.finish());
}

TEST_P(Conformance, RandomTraffic) {
  for (const unsigned seed : {1u, 2u, 3u}) {
    SCOPED_TRACE(::testing::Message() << "seed " << seed);
    std::mt19937 random(seed);
    const auto below = [&](std::size_t n) { return static_cast<std::size_t>(random() % n); };
    const int n = 2 + static_cast<int>(below(3));
    Net net = make(n);
    struct Message {
      Rank from, to;
      Buffer source, target;
      bool view;
      std::uint64_t id;
      bool over;
    };
    std::deque<Message> messages;
    std::vector<std::pair<std::size_t, bool>> posts;  // message, whether it is its send
    for (std::size_t i = 0; i < 400; ++i) {
      const Rank a = static_cast<Rank>(below(static_cast<std::size_t>(n)));
      const Rank b = (a + 1 + static_cast<Rank>(below(static_cast<std::size_t>(n - 1)))) % n;
      const std::size_t bytes = below(std::size_t{1} << below(18));
      const auto memory = below(2) ? Memory::kAlloc : Memory::kMalloc;
      const bool view =
          net[b].transport().views() && bytes <= net[b].caps().max_view && below(3) == 0;
      messages.push_back(
          {a, b, Buffer(bytes, memory, below(9)), Buffer(bytes, memory, below(9)), view, 0, false});
      messages.back().source.fill(i);
      posts.emplace_back(i, true);
      posts.emplace_back(i, false);
    }
    // Bounded reordering: transports limit lent views and unexpected messages.
    for (std::size_t i = 0; i < posts.size(); ++i) {
      std::swap(posts[i], posts[std::min(posts.size() - 1, i + below(40))]);
    }
    const auto give_back = [&] {
      for (std::size_t i = 0; i < messages.size(); ++i) {
        Message& m = messages[i];
        if (m.over || m.id == 0 || !net[m.to].done(m.id)) continue;
        m.over = true;
        const Completion& c = net[m.to].result(m.id);
        ASSERT_EQ(c.code, Code::kOk);
        if (!net.phantom() && m.source.bytes() > 0) {
          ASSERT_TRUE(has_pattern(m.view ? c.view : m.target.data(), m.source.bytes(), i));
        }
        ASSERT_TRUE(m.target.guards_intact());
        if (m.view) net[m.to].transport().views()->release(c.token);
      }
    };
    for (const auto& [i, is_send] : posts) {
      Message& m = messages[i];
      if (is_send) {
        net[m.from].send(m.to, i, m.source);
      } else {
        m.id = net[m.to].post(m.view ? Kind::kView : Kind::kRecv, m.from, i, m.target.data(),
                              m.target.bytes());
      }
      for (std::size_t k = below(4); k > 0; --k) net.poll_all(1 + below(16));
      ASSERT_NO_FATAL_FAILURE(give_back());
    }
    ASSERT_TRUE(net.until([&] {
      give_back();
      for (Rank r = 0; r < n; ++r) {
        if (!net[r].idle()) return false;
      }
      return true;
    }));
    give_back();
    ASSERT_TRUE(std::ranges::all_of(messages, &Message::over));
  }
}

TEST_P(Conformance, EachEndInAThreadOfItsOwn) {
  constexpr int kRanks = 4;
  Net net = make(kRanks);
  if (!net.endpoints().threads) GTEST_SKIP() << "missing capability: one thread per endpoint";
  const auto size = [](Rank from, Rank to, std::uint64_t round) {
    const std::uint64_t x = pattern_word(static_cast<std::uint64_t>(from * 8 + to), round);
    return static_cast<std::size_t>(x % (1u << (x >> 60)) * (round % 8 == 0 ? 16 : 1));
  };
  std::atomic<int> bad{0};
  std::vector<std::thread> threads;
  for (Rank me = 0; me < kRanks; ++me) {
    threads.emplace_back([&, me] {
      End& end = net[me];
      for (std::uint64_t round = 1; round <= 100; ++round) {
        std::deque<Buffer> from, to;
        for (Rank peer = 0; peer < kRanks; ++peer) {
          from.emplace_back(size(me, peer, round)).fill(round * 64 + static_cast<unsigned>(me));
          to.emplace_back(size(peer, me, round));
          if (peer == me) continue;
          end.send(peer, round, from.back());
          end.recv(peer, round, to.back());
        }
        if (!end.wait_idle() || !end.all_ok()) {
          ++bad;
          return;
        }
        for (Rank peer = 0; peer < kRanks; ++peer) {
          const Buffer& b = to[static_cast<std::size_t>(peer)];
          const std::uint64_t seed = round * 64 + static_cast<unsigned>(peer);
          if (peer != me && !has_pattern(b.data(), b.bytes(), seed)) ++bad;
        }
      }
    });
  }
  for (std::thread& t : threads) t.join();
  EXPECT_EQ(bad, 0);
}

}  // namespace weft::testing
