// The verbs transport on this host's devices: stale keys, dead peers, mismatched settings, and the
// device's own counters.
// labels: multiproc
// ctest: alone
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/mman.h>

#include <cstdint>
#include <cstring>
#include <deque>
#include <fstream>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "transport/rail_ranks.h"
#include "transport/verbs/queue_pair.h"
#include "transport/verbs/verbs.h"
#include "transport/verbs_net.h"

namespace weft::testing {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

class VerbsTransfer : public OnVerbs {};

std::unique_ptr<Transport> over_verbs(Job& job, Rank rank) {
  return make_verbs_transport(job, verbs_hosts(job.size()), test_rail(rank));
}

// Memory freed and mapped again at the same address has other pages: an RDMA write with the old key
// would write to wrong memory.
TEST_F(VerbsTransfer, FreedAndMappedAgainNeverHitsAStaleKey) {
  constexpr std::size_t kBytes = 3u << 20;
  struct Kind {
    const char* name;
    std::function<void*()> get;
    std::function<void(void*)> give_back;
  };
  const Kind kinds[] = {
      {"weft::alloc", [] { return alloc(kBytes); }, [](void* p) { weft::free(p); }},
      {"mmap",
       [] {
         return mmap(nullptr, kBytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
       },
       [](void* p) { munmap(p, kBytes); }}};
  Net both = net(2);
  std::uint64_t tag = 1;
  for (const Kind& kind : kinds) {
    SCOPED_TRACE(kind.name);
    int again = 0;
    void *last_from = nullptr, *last_to = nullptr;
    for (int i = 0; i < 6; ++i, ++tag) {
      void *from = kind.get(), *to = kind.get();
      again += from == last_from && to == last_to;
      last_from = from, last_to = to;
      for (std::size_t at = 0; at < kBytes / 8; ++at) {
        const std::uint64_t word = pattern_word(tag, at);
        std::memcpy(static_cast<std::byte*>(from) + 8 * at, &word, 8);
      }
      both[0].post(Transfer::Kind::kSend, 1, tag, from, kBytes);
      both[1].post(Transfer::Kind::kRecv, 0, tag, to, kBytes);
      ASSERT_TRUE(both.finish());
      ASSERT_TRUE(has_pattern(to, kBytes, tag)) << "round " << i;
      kind.give_back(to);  // in this order the kernel reuses the addresses
      kind.give_back(from);
    }
    EXPECT_GT(again, 0) << "never the same addresses: nothing was tested";
  }
}

// The device's counters of receiver-not-ready errors, under their drivers' names; nullopt if the
// device has none.
std::optional<std::uint64_t> not_ready(const std::string& device) {
  std::optional<std::uint64_t> sum;
  for (const char* name : {"rcvd_rnr_err", "send_rnr_err", "retry_rnr_exceeded_err",
                           "rnr_nak_retry_err", "out_of_buffer"}) {
    std::ifstream file("/sys/class/infiniband/" + device + "/ports/1/hw_counters/" + name);
    if (std::uint64_t value = 0; file >> value) sum = sum.value_or(0) + value;
  }
  return sum;
}

TEST_F(VerbsTransfer, NoReceiverIsEverNotReady) {
  const auto all = [] {
    std::vector<std::uint64_t> counts;
    for (const std::string& device : test_devices())
      if (const auto count = not_ready(device)) counts.push_back(*count);
    return counts;
  };
  const std::vector<std::uint64_t> before = all();
  for (const std::string& device : test_devices())
    if (!not_ready(device)) {
      ASSERT_EQ(device.find("rxe"), device.npos) << "rdma_rxe counts them: under which name?";
      GTEST_SKIP() << "missing capability: a counter of receivers not ready at " << device;
    }
  Net both = net(2);
  std::deque<Buffer> from, to;
  for (std::uint64_t i = 0; i < 2000; ++i) {
    const std::size_t bytes = i % 50 == 0 ? 100000 : i % 300;
    for (const Rank r : {0, 1}) {
      both[r].send(1 - r, i, from.emplace_back(bytes));
      both[r].recv(1 - r, i, to.emplace_back(bytes));
    }
    if (i % 400 == 0) both.poll_all();  // mostly neither end polls
  }
  ASSERT_TRUE(both.finish());
  EXPECT_EQ(all(), before);
}

TEST_F(VerbsTransfer, ADeadPeerIsNamedWithTheLikelyCause) {
  run_ranks(3,
            [](SharedBoard& board, Rank rank) {
              RailEnd me(board, rank, over_verbs);
              std::vector<unsigned char> data(200000, 7), to(200000);
              const Rank next = (rank + 1) % 3, before = (rank + 2) % 3;
              me.recv(before, 1, to.data(), to.size(), 1);
              me.send(next, 1, data.data(), data.size(), 2);
              ASSERT_EQ(me.wait(1), Code::kOk);
              ASSERT_EQ(me.wait(2), Code::kOk);
              board.flag(0).fetch_add(1);
              ASSERT_TRUE(SharedBoard::wait([&] { return board.flag(0).load() == 3; }));
              if (rank == 2) raise(SIGKILL);
              me.recv(2, 2, to.data(), to.size(), 3);
              me.send(2, 3, data.data(), data.size(), 5);
              // A waiting rank does not detect the death; a sending one does. The first sends may
              // still be acknowledged, because the process takes a moment to end.
              std::uint64_t tag = 100;
              const auto send_more = [&] { me.send(2, tag, data.data(), 64, 1000 + tag), ++tag; };
              EXPECT_EQ(me.wait(5, send_more), Code::kPeerFailed);
              EXPECT_EQ(me.wait(3), Code::kPeerFailed);
              const Status why = me.rail().cause(2);
              EXPECT_EQ(why.rank(), 2);
              EXPECT_THAT(why.message(), AllOf(HasSubstr("rank 2 on host host2"),
                                               HasSubstr("device "), HasSubstr("status 12"),
                                               HasSubstr("the peer stopped acknowledging")));
              // The surviving ranks continue.
              const Rank other = 1 - rank;
              EXPECT_TRUE(me.rail().cause(other).ok());
              me.recv(other, 4, to.data(), to.size(), 6);
              me.send(other, 4, data.data(), data.size(), 7);
              EXPECT_EQ(me.wait(6), Code::kOk);
              EXPECT_EQ(me.wait(7), Code::kOk);
              EXPECT_EQ(to, data);
              board.flag(1).fetch_add(1);
              ASSERT_TRUE(SharedBoard::wait([&] { return board.flag(1).load() == 2; }));
            },
            {2});
}

TEST_F(VerbsTransfer, SettingsThatMustAgreeAreComparedByName) {
  run_ranks(2, [](SharedBoard& board, Rank rank) {
    if (rank == 1) setenv("WEFT_VERBS_SLOTS", "8", 1);
    try {
      RailEnd me(board, rank, over_verbs);
      ADD_FAILURE() << "ranks of 32 and 8 slots";
    } catch (const Error& e) {
      EXPECT_THAT(e.what(), AllOf(HasSubstr("WEFT_VERBS_SLOTS"), HasSubstr("32"), HasSubstr("8")));
    }
  });
}

TEST_F(VerbsTransfer, ThePathMtuIsTheSmallerOfBothEnds) {
  VerbsSettings small;
  small.mtu = 512;
  const VerbsDevice mine(test_rail(0).name), theirs(test_rail(1).name, small);
  const VerbsPath there = verbs_path(mine.port(), VerbsPort::decode(theirs.port().encode()), "a");
  const VerbsPath back = verbs_path(theirs.port(), VerbsPort::decode(mine.port().encode()), "b");
  EXPECT_EQ(there.mtu, 512);
  EXPECT_EQ(back.mtu, 512);
  EXPECT_EQ(there.mine.bytes, back.theirs.bytes);
  EXPECT_EQ(there.theirs.bytes, back.mine.bytes);
  EXPECT_EQ(there.mine.kind, back.mine.kind);
}

}  // namespace
}  // namespace weft::testing
