// The registration cache and slot credits, without a device.
// ctest: alone
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <deque>
#include <memory>
#include <random>
#include <set>
#include <stdexcept>
#include <vector>

#include "support/fakes/fake_device.h"
#include "transport/memory/memory.h"
#include "transport/verbs/ring.h"
#include "transport/verbs/registration_cache.h"

namespace weft {
namespace {

// Registrations, as a device would record them.
struct Board {
  int next_key = 1;
  std::set<int> live;
  std::size_t bytes = 0;
};
struct FakeMemory {
  FakeMemory(Board& board_in, void* data_in, std::size_t bytes_in)
      : board(&board_in), data(static_cast<std::byte*>(data_in)), bytes(bytes_in) {
    key = board->next_key++;
    board->live.insert(key);
    board->bytes += bytes;
  }
  FakeMemory(FakeMemory&& other) noexcept
      : board(std::exchange(other.board, nullptr)),
        data(other.data),
        bytes(other.bytes),
        key(other.key) {}
  ~FakeMemory() {
    if (!board) return;
    board->live.erase(key);
    board->bytes -= bytes;
  }
  Board* board;
  std::byte* data;
  std::size_t bytes;
  int key = 0;
};
using Cache = RegistrationCache<FakeMemory>;
using Use = Cache::Use;

Cache cache_on(Board& board, std::size_t entries, std::size_t bytes, bool keeps_over = false) {
  return Cache([&board](void* p, std::size_t n, Use) { return FakeMemory(board, p, n); }, entries,
               bytes, keeps_over);
}

constexpr std::size_t kMiB = std::size_t{1} << 20;

// A cached registration allows any use, even if its first use only read.
TEST(VerbsCache, WhatIsKeptMayBeWritten) {
  Board board;
  std::vector<Use> uses;
  Cache cache(
      [&](void* p, std::size_t n, Use use) {
        uses.push_back(use);
        return FakeMemory(board, p, n);
      },
      8, 64 * kMiB);
  void* const memory = weft::alloc(kMiB);
  { const auto lease = cache.acquire(memory, 10, Use::kRead); }
  { const auto lease = cache.acquire(memory, 10, Use::kWrite); }
  EXPECT_THAT(uses, ::testing::ElementsAre(Use::kWrite));
  weft::free(memory);
}

// Memory of a GPU region of weft stays registered until it is freed; users' memory does not.
TEST(VerbsCache, DeviceRegionsAreRegisteredOnceUntilTheyGo) {
  Board board;
  Cache cache = cache_on(board, 8, 64 * kMiB);
  Device& gpus = *fake_device();
  auto region = std::make_unique<DeviceRegion>(gpus, 0, kMiB);
  std::byte* const begin = region->data();
  {
    const auto lease = cache.acquire(begin + 1000, 10, Use::kRead);
    EXPECT_EQ(lease.memory().data, begin);
    EXPECT_EQ(lease.memory().bytes, kMiB);
    (void)cache.acquire(begin + kMiB - 1, 1, Use::kWrite);
    EXPECT_EQ(cache.counts().hits, 1u);
    // Beyond its end, the cached region does not match.
    (void)cache.acquire(begin + kMiB - 1, 2, Use::kWrite);
    EXPECT_EQ(cache.counts().once, 1u);
  }
  region.reset();
  const DeviceRegion other(gpus, 0, kMiB);  // perhaps at the same address
  EXPECT_NE(cache.acquire(other.data(), kMiB, Use::kWrite).memory().key, 1);
  EXPECT_EQ(cache.entries(), 1u);
  EXPECT_EQ(cache.counts().evictions, 1u);
  void* const users = gpus.alloc(0, kMiB);
  (void)cache.acquire(users, 10, Use::kWrite);
  EXPECT_EQ(cache.counts().once, 2u);
  gpus.free(users);
}

TEST(VerbsCache, WeftMemoryIsRegisteredOnceAndAsAWhole) {
  Board board;
  Cache cache = cache_on(board, 8, 64 * kMiB);
  const auto data = alloc_array<std::byte>(kMiB);
  int key = 0;
  for (std::size_t at = 0; at < kMiB; at += 65536) {
    const auto lease = cache.acquire(data.get() + at, 65536, Use::kRead);
    EXPECT_LE(lease.memory().data, data.get());
    EXPECT_GE(lease.memory().data + lease.memory().bytes, data.get() + kMiB);
    if (key == 0) key = lease.memory().key;
    EXPECT_EQ(lease.memory().key, key);
  }
  EXPECT_EQ(cache.counts().misses, 1u);
  EXPECT_EQ(cache.counts().hits, 15u);
  EXPECT_EQ(board.live.size(), 1u) << "kept";
}

TEST(VerbsCache, OtherMemoryIsRegisteredForOneTransferOnly) {
  Board board;
  Cache cache = cache_on(board, 8, 64 * kMiB);
  std::vector<std::byte> data(100000);
  {
    const auto a = cache.acquire(data.data(), data.size(), Use::kRead);
    const auto b = cache.acquire(data.data(), data.size(), Use::kWrite);
    EXPECT_NE(a.memory().key, b.memory().key);
    EXPECT_EQ(board.live.size(), 2u);
  }
  EXPECT_TRUE(board.live.empty()) << "pinned for nothing";
  EXPECT_EQ(cache.counts().once, 2u);
  EXPECT_EQ(cache.entries(), 0u);
}

// The cache keeps finished registrations for Soft-RoCE, which reads them when it retransmits
// packets.
TEST(VerbsCache, AFewThatAreOverStayAndServeNobody) {
  Board board;
  Cache cache = cache_on(board, 8, 64 * kMiB, true);
  std::vector<std::byte> data(100000);
  std::set<int> keys;
  for (int i = 0; i < 500; ++i) {
    const auto lease = cache.acquire(data.data(), data.size(), Use::kRead);
    EXPECT_TRUE(keys.insert(lease.memory().key).second) << "used again";
    EXPECT_LE(board.live.size(), 65u);
  }
  EXPECT_EQ(board.live.size(), 64u);
}

// A call's buffer is registered as a whole, until the call ends.
TEST(VerbsCache, TheBufferOfACallIsRegisteredOnce) {
  Board board;
  Cache cache = cache_on(board, 8, 64 * kMiB);
  std::vector<std::byte> data(100000), other(10);
  const UserBuffer call{data.data(), data.size(), 5, true}, next{data.data(), data.size(), 6, true};
  {
    const auto a = cache.acquire(data.data() + 100, 10, Use::kRead, &call);
    EXPECT_EQ(a.memory().data, data.data());
    EXPECT_EQ(a.memory().bytes, data.size());
  }
  EXPECT_EQ(board.live.size(), 1u) << "the call goes on";
  { const auto b = cache.acquire(data.data(), data.size(), Use::kWrite, &call); }
  EXPECT_EQ(board.next_key, 2);
  // Data copied by a transport, and data beyond the end.
  { const auto c = cache.acquire(other.data(), 10, Use::kRead, &call); }
  EXPECT_EQ(board.next_key, 3);
  { const auto d = cache.acquire(data.data() + data.size() - 1, 2, Use::kRead, &call); }
  EXPECT_EQ(board.next_key, 4);
  const auto late = cache.acquire(data.data(), 10, Use::kRead, &call);
  cache.end_buffer(5);
  EXPECT_EQ(board.live.size(), 1u) << "a transfer still uses it";
  const auto again = cache.acquire(data.data(), 10, Use::kRead, &next);
  EXPECT_NE(again.memory().key, late.memory().key) << "the pages may be others";
  cache.end_buffer(7);
}

// If locked memory is too limited for the buffer, it may suffice for a message.
TEST(VerbsCache, ABufferThatIsRefusedIsRegisteredInParts) {
  Board board;
  Cache cache(
      [&](void* p, std::size_t n, Use) {
        if (n > 1000) throw Error("no");
        return FakeMemory(board, p, n);
      },
      8, 64 * kMiB);
  std::vector<std::byte> data(100000);
  const UserBuffer call{data.data(), data.size(), 5, false};
  for (int i = 0; i < 3; ++i)
    EXPECT_EQ(cache.acquire(data.data() + i, 10, Use::kRead, &call).memory().bytes, 10u);
  cache.end_buffer(5);
  EXPECT_TRUE(board.live.empty());
}

// A cache keyed by address would return the registration of the freed memory.
TEST(VerbsCache, FreedAndMappedAgainIsAnotherRegistration) {
  Board board;
  Cache cache = cache_on(board, 8, 64 * kMiB);
  void* before = nullptr;
  int same_address = 0;
  std::set<int> keys;
  for (int i = 0; i < 20; ++i) {
    void* data = alloc(kMiB);
    same_address += data == before;
    before = data;
    {
      const auto lease = cache.acquire(data, kMiB, Use::kWrite);
      EXPECT_TRUE(keys.insert(lease.memory().key).second) << "a stale key";
      EXPECT_TRUE(board.live.contains(lease.memory().key));
    }
    weft::free(data);
  }
  EXPECT_GT(same_address, 0) << "the kernel gave other addresses: nothing was tested";
  EXPECT_EQ(cache.counts().hits, 0u);
  // Freed memory does not stay pinned: only the last region is left.
  EXPECT_EQ(board.live.size(), 1u);
}

TEST(VerbsCache, BoundsHoldAndTheLeastRecentlyUsedGoes) {
  Board board;
  Cache cache = cache_on(board, 3, 64 * kMiB);
  std::vector<std::unique_ptr<std::byte[], Free>> data;
  for (int i = 0; i < 5; ++i) data.push_back(alloc_array<std::byte>(kMiB));
  const auto touch = [&](std::size_t i) {
    return cache.acquire(data[i].get(), kMiB, Use::kRead).memory().key;
  };
  const int a = touch(0), b = touch(1), c = touch(2);
  EXPECT_EQ(touch(0), a);
  touch(3);  // evicts b
  EXPECT_EQ(cache.entries(), 3u);
  EXPECT_TRUE(board.live.contains(a) && board.live.contains(c));
  EXPECT_FALSE(board.live.contains(b));

  Cache small = cache_on(board, 100, 2 * kMiB);
  for (std::size_t i = 0; i < 5; ++i) {
    small.acquire(data[i].get(), kMiB, Use::kRead);
    EXPECT_LE(small.bytes(), 2 * kMiB);
  }
  EXPECT_EQ(small.entries(), 2u);
  Cache tiny = cache_on(board, 100, kMiB / 2);  // less than one region: never cached
  tiny.acquire(data[0].get(), kMiB, Use::kRead);
  EXPECT_EQ(tiny.entries(), 0u);
}

TEST(VerbsCache, WhatIsInUseStaysAndGoesAfterwards) {
  Board board;
  Cache cache = cache_on(board, 2, 64 * kMiB);
  std::vector<std::unique_ptr<std::byte[], Free>> data;
  std::vector<Cache::Lease> leases;
  for (int i = 0; i < 5; ++i) {
    data.push_back(alloc_array<std::byte>(kMiB));
    leases.push_back(cache.acquire(data.back().get(), kMiB, Use::kWrite));
  }
  for (const auto& lease : leases) EXPECT_TRUE(board.live.contains(lease.memory().key));
  EXPECT_EQ(cache.entries(), 5u);
  leases.clear();
  EXPECT_LE(cache.entries(), 2u);
  EXPECT_LE(board.live.size(), 2u);
}

TEST(VerbsCache, AFailedRegistrationLeavesNothingBehind) {
  bool fails = true;
  Board board;
  Cache cache(
      [&](void* p, std::size_t n, Use) {
        if (fails) throw std::runtime_error("no");
        return FakeMemory(board, p, n);
      },
      4, 64 * kMiB);
  const auto data = alloc_array<std::byte>(kMiB);
  std::vector<std::byte> other(100);
  EXPECT_THROW(cache.acquire(data.get(), 8, Use::kRead), std::runtime_error);
  EXPECT_THROW(cache.acquire(other.data(), 8, Use::kRead), std::runtime_error);
  EXPECT_EQ(cache.bytes(), 0u);
  fails = false;
  EXPECT_TRUE(cache.acquire(data.get(), 8, Use::kRead));
  EXPECT_EQ(cache.entries(), 1u);
}

// ---- credits -------------------------------------------------------------------------------

TEST(VerbsCredits, ImmediatesSurviveTheWire) {
  for (const std::uint32_t index : {0u, 1u, 77u, 16383u}) {
    for (const std::uint32_t taken : {0u, 1u, 32768u, 65535u}) {
      const VerbsImmediate a{VerbsImmediate::Kind::kWindow, index,
                             static_cast<std::uint16_t>(taken)};
      const VerbsImmediate b = VerbsImmediate::unpack(a.pack());
      EXPECT_EQ(b.kind, a.kind);
      EXPECT_EQ(b.index, index);
      EXPECT_EQ(b.taken, taken);
    }
  }
}

TEST(VerbsCredits, AClaimOfMoreThanWasSentIsRefused) {
  VerbsSendCredits credits(4);
  credits.take();
  credits.take();
  EXPECT_FALSE(credits.heard(3));
  EXPECT_TRUE(credits.heard(2));
  EXPECT_FALSE(credits.heard(1)) << "counts do not fall";
}

// One end of a queue pair, as the transport drives it; the wire is ordered.
struct End {
  explicit End(int slots, int windows)
      : send(slots), recv(slots), posted(VerbsRecvCredits::recv_depth(slots, windows)) {}
  VerbsSendCredits send;
  VerbsRecvCredits recv;
  int posted;                       // receive requests
  int to_give_back = 0;             // taken from completions, not yet posted again
  std::deque<VerbsImmediate> wire;  // to the other end
  std::uint64_t taken = 0, sent = 0;
};

// Any order of events: slots never overrun, receives are never missing, and there is no deadlock.
TEST(VerbsCredits, NeverAReceiveMissingAndNeverStuck) {
  for (const int slots : {2, 3, 4, 32, 100}) {
    for (unsigned seed = 1; seed <= 20; ++seed) {
      SCOPED_TRACE(::testing::Message() << slots << " slots, seed " << seed);
      std::mt19937 random(seed);
      End ends[2] = {End(slots, 0), End(slots, 0)};
      const std::uint64_t goal[2] = {70000 / (seed % 4 + 1), seed % 3 ? 3000u : 0u};
      std::uint64_t turns = 0;
      const auto done = [&] { return ends[0].sent == goal[0] && ends[1].sent == goal[1]; };
      while (!done()) {
        ASSERT_LT(++turns, 3000000u) << "stuck";
        const std::size_t me = random() % 2;
        End &end = ends[me], &other = ends[1 - me];
        // Delivers some of what has arrived.
        for (std::size_t n = random() % 8; n > 0 && !other.wire.empty(); --n) {
          const VerbsImmediate what = other.wire.front();
          other.wire.pop_front();
          ASSERT_GT(end.posted, 0) << "receiver not ready";
          --end.posted;
          ++end.to_give_back;
          ASSERT_TRUE(end.send.heard(what.taken));
          if (what.kind != VerbsImmediate::Kind::kMessage) continue;
          ASSERT_EQ(static_cast<int>(what.index), end.recv.next());
          end.recv.took();
          ++end.taken;
        }
        if (end.recv.due(end.to_give_back)) {
          end.posted += std::exchange(end.to_give_back, 0);
          end.recv.reposted();
        }
        for (std::size_t n = random() % 40; n > 0; --n) {
          if (end.sent == goal[me] || !end.send.available()) break;
          const auto slot = static_cast<std::uint32_t>(end.send.take());
          end.wire.push_back({VerbsImmediate::Kind::kMessage, slot, end.recv.tell()});
          ++end.sent;
        }
        if (end.recv.owes()) end.wire.push_back({VerbsImmediate::Kind::kEmpty, 0, end.recv.tell()});
        ASSERT_LE(end.sent - other.taken, static_cast<std::uint64_t>(slots));
        ASSERT_LE(static_cast<int>(end.wire.size()), VerbsRecvCredits::recv_depth(slots, 0));
      }
    }
  }
}

}  // namespace
}  // namespace weft
