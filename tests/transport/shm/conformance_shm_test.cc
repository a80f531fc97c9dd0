// The shm transport under the conformance suite, with malloc memory by size, through slots only,
// and by cross-memory attach only.
// labels: multiproc
// ctest: alone
// sanitize: long
#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/resource.h>

#if __has_include("transport/shm/shm.h")
#include <array>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <fstream>
#include <memory>
#include <numeric>
#include <random>
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

// A message that waits for a slot is queued before staged messages, which hold all other slots.
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

// The receiver stops polling where the sender passes a held view's cell over, and releases the
// view. The sender uses the cell again before the receiver has looked at the lap that was passed
// over.
TEST(ShmSlots, OfAViewReleasedBeforeItsPassedCellIsReadAreUsedAgain) {
  constexpr std::uint64_t kCells = 256;
  Net net(maker("", "auto").make(2));
  Buffer from(20);
  from.fill(1);
  std::deque<Buffer> into;
  net[0].send(1, 0, from);
  const auto lent = net[1].post(Transfer::Kind::kView, 0, 0, nullptr, 20);
  for (std::uint64_t tag = 1; tag < kCells; ++tag) {
    net[0].send(1, tag, from);
    net[1].recv(0, tag, into.emplace_back(20));
  }
  const auto poll = [&](Rank r) {
    for (std::uint64_t i = 0; i < 2 * kCells; ++i) net[r].poll();
  };
  poll(1);
  ASSERT_EQ(net[1].open(), 0u);
  net[0].send(1, kCells, from);  // in the cell after the cell that is passed over
  poll(0);
  EXPECT_TRUE(net[1].transport().views()->release(net[1].result(lent).token));
  for (std::uint64_t tag = kCells + 1; tag < 3 * kCells; ++tag) {
    net[0].send(1, tag, from);
    net[0].poll();
  }
  for (std::uint64_t tag = kCells; tag < 3 * kCells; ++tag)
    net[1].recv(0, tag, into.emplace_back(20));
  ASSERT_TRUE(net.finish());
  for (const Buffer& one : into) EXPECT_TRUE(has_pattern(one.data(), 20, 1));
}

// Acknowledgments count laps modulo 256. A view is held for as many laps; then a message in its
// cell must not complete before its receiver has read it.
TEST(ShmSlots, OfAViewHeldFor256LapsTakeOneAcknowledgmentForOneMessage) {
  Net net(maker("", "auto").make(2));
  Buffer from(5000, Memory::kAlloc), into(5000);
  from.fill(1);
  net[0].send(1, 0, from);
  const auto lent = net[1].post(Transfer::Kind::kView, 0, 0, nullptr, from.bytes());
  ASSERT_TRUE(net.until([&] { return net[1].done(lent); }));
  std::uint64_t tag = 1;
  const auto pass = [&](std::uint64_t messages) {
    for (const std::uint64_t last = tag + messages; tag < last; ++tag) {
      net[0].send(1, tag, from);
      const auto got = net[1].recv(0, tag, into);
      ASSERT_TRUE(net.until([&] { return net[1].done(got); })) << tag;
    }
  };
  pass(256 * 255);  // a lap has 255 messages and the held cell
  EXPECT_TRUE(net[1].transport().views()->release(net[1].result(lent).token));
  ASSERT_TRUE(net.until([&] { return net[0].idle(); }));
  for (int i = 0; i < 600; ++i, tag += 2) {
    const auto first = net[0].send(1, tag, from), second = net[0].send(1, tag + 1, from);
    net[1].recv(0, tag + 1, into);
    ASSERT_TRUE(net.until([&] { return net[0].done(second); }));
    ASSERT_FALSE(net[0].done(first)) << "message " << tag << " was not received";
    net[1].recv(0, tag, into);
    ASSERT_TRUE(net.finish());
  }
}

// Each rank sends, receives, holds views, releases them and polls in an order drawn by seed.
TEST(ShmSlots, OfRandomOrdersOfPollsAndReleasesCarryEveryMessage) {
  for (std::uint64_t seed = 1; seed <= 30; ++seed) {
    Net net(maker("", "auto").make(2));
    std::mt19937_64 random(seed);
    Buffer from(5000, Memory::kAlloc);
    from.fill(seed);
    std::deque<Buffer> into;
    std::vector<std::pair<std::uint64_t, std::size_t>> views;  // receives and their bytes
    std::uint64_t sent = 0, received = 0;
    const std::uint64_t hold = random() % 120, burst = 16 + random() % 300;
    const auto release = [&](std::size_t which) {
      const auto [id, bytes] = views[which];
      if (!net[1].done(id)) return;
      EXPECT_TRUE(has_pattern(net[1].result(id).view, bytes, seed)) << "seed " << seed;
      EXPECT_TRUE(net[1].transport().views()->release(net[1].result(id).token));
      views.erase(views.begin() + static_cast<std::ptrdiff_t>(which));
    };
    const auto bytes_of = [&](std::uint64_t tag) {
      return std::array<std::size_t, 3>{20, 3000, 5000}[(tag * 7 + seed) % 3];
    };
    while (received < 20000) {
      const std::uint64_t n = random() % burst;
      switch (random() % 4) {
        case 0:
          for (std::uint64_t i = 0; i < n && sent < received + 2000; ++i, ++sent)
            net[0].post(Transfer::Kind::kSend, 1, sent, from.data(), bytes_of(sent));
          break;
        case 1:
          for (std::uint64_t i = 0; i < n && received < sent + 500; ++i, ++received) {
            const std::size_t bytes = bytes_of(received);
            if (views.size() < hold && random() % 8 == 0)
              views.emplace_back(net[1].post(Transfer::Kind::kView, 0, received, nullptr, bytes),
                                 bytes);
            else
              net[1].recv(0, received, into.emplace_back(bytes));
          }
          break;
        case 2:
          for (std::uint64_t i = 0; i < n % 8; ++i) net[random() % 2 ? 1 : 0].poll();
          break;
        default:
          for (std::uint64_t i = 0; i < n % 8 && !views.empty(); ++i)
            release(random() % views.size());
      }
    }
    for (; sent < received; ++sent)
      net[0].post(Transfer::Kind::kSend, 1, sent, from.data(), bytes_of(sent));
    for (; received < sent; ++received)
      net[1].recv(0, received, into.emplace_back(bytes_of(received)));
    ASSERT_TRUE(net.until([&] { return net[1].idle(); })) << "seed " << seed;
    while (!views.empty()) release(0);
    ASSERT_TRUE(net.finish()) << "seed " << seed;
    for (const Buffer& one : into)
      ASSERT_TRUE(has_pattern(one.data(), one.bytes(), seed)) << "seed " << seed;
  }
}

// If one rank cannot open a file of shared memory, all ranks report this and name the rank.
// Regression: they reported a death, or missing memory with a remedy about pid namespaces.
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
