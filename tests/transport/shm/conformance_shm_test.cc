// The shm transport under the conformance suite, with malloc memory by size, through slots only,
// and by cross-memory attach only.
// labels: multiproc
// ctest: alone
// sanitize: long
#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/resource.h>

#if __has_include("transport/shm/shm.h")
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <fstream>
#include <memory>
#include <numeric>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "support/jobs/processes.h"
#include "support/process/sanitizer.h"
#include "transport/conformance.h"
#include "transport/late_messages.h"
#include "transport/shm/shm.h"

namespace weft::testing {
namespace {

Maker maker(std::string name, const char* copy, std::size_t at_once = shm::kMappedAtOnce) {
  return {std::move(name), [copy, at_once](int n) {
            setenv("WEFT_SHM_COPY", copy, 1);
            return make_in_threads(n, [n, at_once](Job& job, Rank) {
              std::vector<Rank> members(static_cast<std::size_t>(n));
              std::iota(members.begin(), members.end(), 0);
              return make_shm_transport(job, one_host(n), members, at_once);
            });
          }};
}

INSTANTIATE_TEST_SUITE_P(Shm, Conformance,
                         ::testing::Values(maker("BySize", "auto"), maker("Slots", "slots"),
                                           maker("MappedWhenNeeded", "auto", 0)),
                         maker_name);
INSTANTIATE_TEST_SUITE_P(ShmAttach, Conformance, ::testing::Values(maker("Attach", "cma")),
                         maker_name);

TEST(ShmMessages, OfAPeerThatIsFarAheadWaitInItsMemory) {
  constexpr std::size_t kLimit = 2 << 20;
  setenv("WEFT_UNEXPECTED_BYTES", std::to_string(kLimit).c_str(), 1);
  Net two(maker("", "slots").make(2));
  unsetenv("WEFT_UNEXPECTED_BYTES");
  expect_slowed_not_failed(two, kLimit, 48 << 10, 1000);
}

TEST(ShmMessages, ThatWereLateLeaveNoMemoryBehind) {
  for (const char* copy : {"auto", "slots"}) {
    Net two(maker("", copy).make(2));
    expect_memory_comes_back(two, 20 << 20, 20);
    expect_memory_comes_back(two, 48 << 10, 4000);
  }
}

// Receivers hold slots as views and as unexpected messages. The messages that they wait for still
// arrive.
TEST(ShmSlots, HeldByReceiversLeaveOneForWhatTheyWaitFor) {
  for (const int n : {2, 3}) {
    Net net(maker("", "slots").make(n));
    constexpr std::uint64_t kViews = 50, kUnexpected = 10, kEach = 100;
    std::deque<Buffer> from, to;
    std::vector<std::pair<int, std::uint64_t>> lent;
    std::uint64_t tag = 0;
    for (const std::size_t bytes : {60000, 100000, 200000}) {
      for (int r = 1; r < n; ++r)
        for (std::uint64_t i = 0; i < kViews; ++i)
          lent.emplace_back(r, net[r].post(Transfer::Kind::kView, 0, tag + i, nullptr, bytes));
      for (std::uint64_t i = 0; i < kViews + kUnexpected; ++i) {
        from.emplace_back(bytes).fill(tag + i);
        for (int r = 1; r < n; ++r) net[0].send(r, tag + i, from.back());
      }
      from.emplace_back(bytes).fill(tag + kEach - 1);
      for (int r = 1; r < n; ++r) {
        net[0].send(r, tag + kEach - 1, from.back());
        const auto got = net[r].recv(0, tag + kEach - 1, to.emplace_back(bytes));
        ASSERT_TRUE(net.until([&] { return net[r].done(got); })) << bytes << " bytes";
        EXPECT_TRUE(has_pattern(to.back().data(), bytes, tag + kEach - 1));
      }
      tag += kEach;
    }
    ASSERT_TRUE(net.until([&] { return net[0].idle(); }));
    for (const auto& [r, id] : lent) net[r].transport().views()->release(net[r].result(id).token);
    tag = 0;
    for (const std::size_t bytes : {60000, 100000, 200000}) {
      for (int r = 1; r < n; ++r)
        for (std::uint64_t i = kViews; i < kViews + kUnexpected; ++i)
          net[r].recv(0, tag + i, to.emplace_back(bytes));
      tag += kEach;
    }
    ASSERT_TRUE(net.finish());
  }
}

// A message that waits for a slot is queued before staged messages, which have all the others.
TEST(ShmSlots, OfStagedMessagesBehindOneThatWaitsComeFree) {
  Net net(maker("", "slots").make(2));
  constexpr std::size_t kBytes = 200000;
  Staging* const staging = net[0].transport().staging();
  std::vector<void*> staged;
  while (void* const one = staging->stage(kBytes)) staged.push_back(one);
  ASSERT_FALSE(staged.empty());
  const auto lent =
      net[1].post(Transfer::Kind::kView, 0, 100, nullptr, kBytes);  // holds the last slot
  Buffer first(kBytes), second(kBytes), to(kBytes);
  second.fill(2);
  net[0].send(1, 100, first);
  ASSERT_TRUE(net.until([&] { return net[1].done(lent); }));
  net[0].send(1, 101, second);
  std::deque<Buffer> into;
  for (std::size_t i = 0; i < staged.size(); ++i) {
    Buffer source(kBytes);
    source.fill(10 + i);
    std::memcpy(staged[i], source.data(), kBytes);
    net[0].post(Transfer::Kind::kSend, 1, i, staged[i], kBytes);
    staging->unstage(staged[i]);
    net[1].recv(0, i, into.emplace_back(kBytes));
  }
  const auto got = net[1].recv(0, 101, to);
  ASSERT_TRUE(net.until([&] { return net[1].done(got); }));
  EXPECT_TRUE(has_pattern(to.data(), kBytes, 2));
  for (std::size_t i = 0; i < staged.size(); ++i)
    EXPECT_TRUE(has_pattern(into[i].data(), kBytes, 10 + i)) << i;
  net[1].transport().views()->release(net[1].result(lent).token);
  ASSERT_TRUE(net.finish());
}

// Views that a receiver holds for long, in cells, slots and mapped memory, more of them than cells.
// The sender fills the ring many times meanwhile.
TEST(ShmSlots, OfHeldViewsLetTheMessagesBehindThemPass) {
  for (const std::uint64_t held : {1, 600}) {
    for (const auto& [bytes, memory] : {std::pair{std::size_t{16}, Memory::kMalloc},
                                        std::pair{std::size_t{3000}, Memory::kMalloc},
                                        std::pair{std::size_t{5000}, Memory::kAlloc}}) {
      Net net(maker("", "auto").make(2));
      std::deque<Buffer> from, into;
      std::vector<std::uint64_t> lent;
      for (std::uint64_t i = 0; i < held; ++i) {
        from.emplace_back(bytes, memory).fill(i);
        net[0].send(1, i, from.back());
        lent.push_back(net[1].post(Transfer::Kind::kView, 0, i, nullptr, bytes));
        ASSERT_TRUE(net.until([&] { return net[1].done(lent.back()); })) << i << " of " << held;
      }
      for (std::uint64_t i = 0; i < 1000; ++i) {
        from.emplace_back(20).fill(1000 + i);
        net[0].send(1, 1000 + i, from.back());
        const auto got = net[1].recv(0, 1000 + i, into.emplace_back(20));
        ASSERT_TRUE(net.until([&] { return net[1].done(got); }))
            << i << " messages behind " << held << " views of " << bytes << " bytes";
        ASSERT_TRUE(has_pattern(into.back().data(), 20, 1000 + i));
      }
      for (std::uint64_t i = 0; i < held; ++i) {
        const Completion& view = net[1].result(lent[i]);
        EXPECT_TRUE(has_pattern(view.view, bytes, i)) << i << " of " << held;
        EXPECT_TRUE(net[1].transport().views()->release(view.token));
      }
      ASSERT_TRUE(net.until([&] { return net[0].idle(); })) << "the views' sends are not complete";
    }
  }
}

// If one rank cannot open a file of shared memory, all ranks report this and name the rank. They
// used to report a death, or missing memory with a remedy about pid namespaces.
TEST(ShmSetUp, WhatOneRankCannotOpenAllRanksName) {
  constexpr int kRanks = 3, kWords = 400;
  Shared<char> said(kRanks * kWords);
  int failed = 0;
  for (int files = 0; files < 20; ++files) {
    Processes job(kRanks, std::chrono::seconds(20), [&](const JobSpec& spec) {
      setenv("WEFT_SHM_COPY", "auto", 1);
      const std::unique_ptr<Job> of = connect(spec);
      if (spec.rank == 1) {
        const auto low = static_cast<rlim_t>(fcntl(0, F_DUPFD_CLOEXEC, 0) + files);
        const rlimit limit{low, low};
        if (setrlimit(RLIMIT_NOFILE, &limit) != 0) return 2;
      }
      const std::vector<Rank> members{0, 1, 2};
      try {
        const auto transport = make_shm_transport(*of, one_host(kRanks), members);
        of->all_gather("");
      } catch (const Error& e) {
        std::snprintf(&said[spec.rank * kWords], kWords, "%s", e.what());
        return 1;
      }
      of->leave();
      return 0;
    });
    ASSERT_TRUE(job.wait(std::chrono::seconds(60)));
    if (job.code(1) == 0) break;
    ++failed;
    for (Rank r = 0; r < kRanks; ++r) {
      ASSERT_EQ(job.code(r), 1) << "rank " << r << " of " << files << " files";
      const std::string words = &said[r * kWords];
      EXPECT_EQ(words.find("rank 1 on host"), 0u) << "rank " << r << ": " << words;
      EXPECT_NE(words.find("Too many open files; raise the limit"), words.npos) << words;
    }
  }
  EXPECT_GT(failed, 3);  // its arena, its directory, a peer's arena, a peer's directory
}

// After a rank cancels an operation, it reuses the buffer that a peer still reads. The peer must
// notice.
TEST(ShmViews, BytesTakenBackWhileLentAreNotTakenAsRead) {
  setenv("WEFT_SHM_COPY", "auto", 1);
  Net net(maker("", "auto").make(2));
  for (const bool given_up : {false, true}) {
    Buffer from(50000, Memory::kAlloc);
    from.fill(7);
    net[0].send(1, 5 + given_up, from);
    const std::uint64_t got =
        net[1].post(Transfer::Kind::kView, 0, 5 + given_up, nullptr, from.bytes());
    ASSERT_TRUE(net.until([&] { return net[1].done(got); }));
    if (given_up) net[0].cancel(1);
    EXPECT_EQ(net[1].transport().views()->release(net[1].result(got).token), !given_up);
  }
}

// Plain memory that two ranks write in turns, ordered only by messages, under ThreadSanitizer.
TEST(ShmOrder, WhatWasWrittenBeforeAMessageIsThereAfterIt) {
  setenv("WEFT_SHM_COPY", "slots", 1);
  Net net(maker("", "slots").make(2));
  constexpr std::uint64_t kTurns = 500;
  std::vector<std::uint64_t> shared(16, 0);
  std::uint64_t wrong = 0;
  const auto play = [&](std::size_t me) {
    Buffer out(8), in(8);
    out.fill(1);
    const auto peer = static_cast<Rank>(1 - me);
    const auto wait = [&](std::uint64_t id) {
      const auto until = std::chrono::steady_clock::now() + kDeadline;
      while (!net[me].done(id) && std::chrono::steady_clock::now() < until) net[me].poll();
    };
    for (std::uint64_t turn = 0; turn < kTurns; ++turn) {
      if (turn % 2 == me) {
        for (std::uint64_t& word : shared) word += 1;
        wait(net[me].send(peer, turn, out));
      } else {
        wait(net[me].recv(peer, turn, in));
        for (const std::uint64_t word : shared) wrong += word != turn + 1;
      }
    }
  };
  std::thread other(play, 1);
  play(0);
  other.join();
  EXPECT_EQ(wrong, 0U);
}

TEST(ShmOrder, WhatWasWrittenBeforeARoundOfABoardIsThereAfterIt) {
  Net net(maker("", "slots").make(2));
  const std::vector<Rank> members{0, 1};
  constexpr std::uint32_t kTurns = 500;
  std::vector<std::uint32_t> shared(16, 0);
  std::uint64_t wrong = 0;
  const auto play = [&](std::size_t me) {
    const std::unique_ptr<Board> board = net[me].transport().boards()->fixed(members, 0);
    const auto until = std::chrono::steady_clock::now() + kDeadline;
    const auto meet = [&](std::uint32_t round) {
      board->publish(round, nullptr, 0, Head{});
      while (!board->read(static_cast<int>(1 - me), round) &&
             std::chrono::steady_clock::now() < until)
        std::this_thread::yield();
    };
    for (std::uint32_t turn = 0; turn < kTurns; ++turn) {
      if (turn % 2 == me)
        for (std::uint32_t& word : shared) word += 1;
      meet(2 * turn + 1);
      if (turn % 2 != me)
        for (const std::uint32_t word : shared) wrong += word != turn + 1;
      meet(2 * turn + 2);
    }
  };
  std::thread other(play, 1);
  play(0);
  other.join();
  EXPECT_EQ(wrong, 0U);
}

// Unexpected messages that are later lent as views.
TEST(ShmViews, MemoryOfWhatCameEarlyIsUsedAgain) {
  if (kSanitizer) GTEST_SKIP() << "missing capability: memory that no sanitizer adds to";
  setenv("WEFT_SHM_COPY", "auto", 1);
  Net net(maker("", "auto").make(2));
  const auto resident = [] {
    std::ifstream statm("/proc/self/statm");
    std::size_t all = 0, pages = 0;
    statm >> all >> pages;
    return pages * 4096;
  };
  constexpr std::uint64_t kMessages = 16;
  constexpr std::size_t kBytes = 64 << 10;
  Buffer from(kBytes);
  std::size_t before = 0;
  for (std::uint64_t round = 0; round < 550; ++round) {
    if (round == 50) before = resident();
    std::vector<std::uint64_t> sent, got;
    for (std::uint64_t m = 0; m < kMessages; ++m) {
      from.fill(m);
      sent.push_back(net[0].send(1, m, from));
      ASSERT_TRUE(net.until([&] { return net[0].done(sent.back()); }));
    }
    net[1].poll();
    for (std::uint64_t m = 0; m < kMessages; ++m)
      got.push_back(net[1].post(Transfer::Kind::kView, 0, m, nullptr, kBytes));
    for (std::uint64_t m = 0; m < kMessages; ++m) {
      ASSERT_TRUE(net.until([&] { return net[1].done(got[m]); }));
      ASSERT_TRUE(has_pattern(net[1].result(got[m]).view, kBytes, m));
    }
    for (const std::uint64_t id : got) net[1].transport().views()->release(net[1].result(id).token);
  }
  EXPECT_LT(resident(), before + (32 << 20));
}

}  // namespace
}  // namespace weft::testing
#else
TEST(Shm, Conformance) { GTEST_SKIP() << "missing capability: the shm transport"; }
#endif
