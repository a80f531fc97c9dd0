// Features of newer drivers: queues without locks, ibv_wr_*, ECE, and huge pages for slots. Each is
// used if the fake device has it, and not used if the device refuses it or its variable is 0.
// Another test refuses registrations of GPU memory temporarily.
// ctest: alone
#include <gtest/gtest.h>

#include <cstdlib>
#include <cstring>
#include <fstream>
#include <functional>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include "support/fakes/fake_device.h"
#include "support/fakes/fake_verbs.h"
#include "support/fakes/forged_job.h"
#include "transport/conformance.h"
#include "transport/gpu/device_region.h"
#include "transport/verbs/queue_pair.h"
#include "transport/verbs/verbs.h"

namespace weft::testing {
namespace {

// VmFlags of the mapping that contains this address, from smaps.
std::string flags_of(const void* address) {
  std::ifstream smaps("/proc/self/smaps");
  bool in = false;
  for (std::string line; std::getline(smaps, line);) {
    std::uintptr_t begin = 0, end = 0;
    char dash = 0;
    std::istringstream range(line);
    if (range >> std::hex >> begin >> dash >> end && dash == '-')
      in = reinterpret_cast<std::uintptr_t>(address) - begin < end - begin;
    if (in && line.starts_with("VmFlags:")) return line + ' ';
  }
  return {};
}

// Must be the first test of this program: it needs the fake GPUs from the beginning.
TEST(VerbsRegions, AreAskedForAgainAfterARefusal) {
  FakeDevice& gpu = use_fake_device();
  gpu.give_nics(true);
  FakeVerbs& fake = FakeVerbs::get();
  fake.wired = true;
  Nic rail;
  rail.name = "fake";
  rail.rdma = rail.up = true;
  Net both(make_in_threads(
      2, [&](Job& job, Rank) { return make_verbs_transport(job, separate_hosts(2, rail), rail); }));
  constexpr std::size_t kBytes = 200'000;
  DeviceRegion from(gpu, 1, kBytes), to(gpu, 2, kBytes);
  for (std::uint64_t tag = 1; tag <= 4; ++tag) {
    Buffer pattern(kBytes);
    pattern.fill(tag);
    std::memcpy(gpu.local(from.data()), pattern.data(), kBytes);
    // The first message goes through host memory; the others are not copied.
    fake.refuse_regions = tag == 1 ? 2 : 0;
    gpu.fail_next(tag == 1 ? "" : "copy");
    both[1].post(Transfer::Kind::kRecv, 0, tag, to.data(), kBytes);
    both[0].post(Transfer::Kind::kSend, 1, tag, from.data(), kBytes);
    ASSERT_TRUE(both.finish()) << tag;
    EXPECT_EQ(fake.refuse_regions, 0);
    EXPECT_TRUE(has_pattern(gpu.local(to.data()), kBytes, tag));
  }
  gpu.fail_next("");
  gpu.give_nics(false);
  fake.wired = false;
}

class VerbsOffers : public ::testing::Test {
 protected:
  void SetUp() override { fake_.wired = true; }
  void TearDown() override {
    for (const char* variable : std::exchange(set_, {})) unsetenv(variable);
    fake_.has_wr = fake_.has_thread_domains = fake_.has_parent_domains = true;
    fake_.has_extended_queues = true;
    fake_.ece = {0x2c9, 6, 0};
    fake_.wired = false;
    EXPECT_EQ(fake_.threads, 0);
  }
  void switch_off(const char* variable) {
    setenv(variable, "0", 1);
    set_.push_back(variable);
  }
  // Sends short and long messages; `look` then checks how they were sent.
  template <class Look>
  void pass(Look look) {
    Nic rail;
    rail.name = "fake";
    rail.rdma = rail.up = true;
    Net net(make_in_threads(2, [&](Job& job, Rank) {
      return make_verbs_transport(job, separate_hosts(2, rail), rail);
    }));
    for (std::uint64_t tag = 1; tag < 6; ++tag) {
      const std::size_t bytes = tag % 2 ? 40 : 100'000;
      Buffer from(bytes), to(bytes);
      from.fill(tag);
      net[0].send(1, tag, from);
      net[1].recv(0, tag, to);
      ASSERT_TRUE(net.finish());
      ASSERT_TRUE(has_pattern(to.data(), bytes, tag));
    }
    ASSERT_EQ(fake_.pairs.size(), 2u);
    look();
  }
  void expect(bool wr, bool one_thread, std::uint32_t ece) {
    pass([&] {
      for (const auto& pair : fake_.pairs) {
        EXPECT_EQ(pair.has_wr, wr);
        EXPECT_EQ(pair.by_wr, wr ? pair.posted : 0u);
        EXPECT_EQ(pair.ece.options, ece);
      }
      for (const auto& queue : fake_.queues) EXPECT_EQ(queue.one_thread, one_thread);
    });
  }
  FakeVerbs& fake_ = FakeVerbs::get();
  std::vector<const char*> set_;
};

TEST_F(VerbsOffers, AreUsedWhereTheyAreThereAndNotSwitchedOff) {
  const struct {
    std::function<void()> without;
    bool wr, one_thread;
    std::uint32_t ece;
  } cases[] = {
      {[] {}, true, true, 6},
      {[&] { fake_.has_wr = false; }, false, true, 6},
      {[&] { switch_off("WEFT_VERBS_WR"); }, false, true, 6},
      {[&] { fake_.has_thread_domains = false; }, true, false, 6},
      {[&] { fake_.has_parent_domains = false; }, true, false, 6},
      {[&] { fake_.has_extended_queues = false; }, true, false, 6},
      {[&] { switch_off("WEFT_VERBS_ONE_THREAD"); }, true, false, 6},
      {[&] { fake_.ece = {}; }, true, true, 0},
      {[&] { switch_off("WEFT_VERBS_ECE"); }, true, true, 0},
  };
  for (const auto& c : cases) {
    SCOPED_TRACE(&c - cases);
    TearDown();
    SetUp();
    c.without();
    ASSERT_NO_FATAL_FAILURE(expect(c.wr, c.one_thread, c.ece));
  }
}

// Both ends use the options that both devices have.
TEST_F(VerbsOffers, OptionsOfEceAreThoseOfBothEnds) {
  struct Case {
    ibv_ece mine, theirs;
    std::uint32_t both;
  };
  for (const Case& c :
       {Case{{0x2c9, 6, 0}, {0x2c9, 3, 0}, 2}, Case{{0x2c9, 6, 0}, {0x14e4, 6, 0}, 0},
        Case{{0x2c9, 4, 0}, {0x2c9, 3, 0}, 0}, Case{{0x2c9, 6, 0}, {}, 0}}) {
    const VerbsDevice device("fake");
    VerbsCq queue(device, 64, false);
    const VerbsQpOptions options{.send_depth = 16, .recv_depth = 16};
    fake_.ece = c.mine;
    VerbsQp mine(device, queue, queue, options);
    fake_.ece = c.theirs;
    VerbsQp theirs(device, queue, queue, options);
    const VerbsPath path = verbs_path(device.port(), device.port(), device.where());
    mine.connect(path, theirs.name());
    theirs.connect(path, mine.name());
    EXPECT_EQ(mine.ece_options(), c.both);
    EXPECT_EQ(theirs.ece_options(), c.both);
    EXPECT_EQ(fake_.pair(mine.number())->ece.options, c.both);
  }
}

// A chain is posted as a whole or not at all.
TEST_F(VerbsOffers, AChainWithAnUnknownRequestIsRefused) {
  const VerbsDevice device("fake");
  VerbsCq queue(device, 64, false);
  VerbsQp qp(device, queue, queue, {.send_depth = 16, .recv_depth = 16});
  ASSERT_TRUE(qp.extended());
  ibv_send_wr first{}, second{};
  first.opcode = IBV_WR_RDMA_WRITE;
  first.next = &second;
  second.opcode = IBV_WR_LOCAL_INV;
  ibv_send_wr* bad = nullptr;
  EXPECT_EQ(qp.post(&first, &bad), EINVAL);
  EXPECT_EQ(bad, &first);
  EXPECT_EQ(fake_.pair(qp.number())->posted, 0u);
  EXPECT_TRUE(fake_.pair(qp.number())->begun.empty());
}

TEST_F(VerbsOffers, SlotsAreOnHugePages) {
  if (!std::ifstream("/sys/kernel/mm/transparent_hugepage/enabled"))
    GTEST_SKIP() << "missing capability: transparent huge pages";
  setenv("WEFT_VERBS_SLOTS", "256", 1);
  set_.push_back("WEFT_VERBS_SLOTS");
  const auto wished = [&] {
    bool any = false;
    pass([&] {
      for (const auto& region : fake_.regions)
        any = any || flags_of(region.mr.addr).find(" hg ") != std::string::npos;
    });
    return any;
  };
  EXPECT_TRUE(wished());
  switch_off("WEFT_VERBS_HUGE_PAGES");
  EXPECT_FALSE(wished());
}

// A queue pair that records its calls.
struct Listing : ibv_qp_ex {
  std::string asked;
  static void add(ibv_qp_ex* qp, const char* what) {
    auto& list = *static_cast<Listing*>(qp);
    list.asked += what;
    if (qp->wr_flags & IBV_SEND_INLINE) list.asked += " inline";
  }
};

// All operations of transports and of `weft perf bw` and `lat`; on devices that obey a flag, losing
// it would lose the message's data.
TEST(VerbsChainPoster, HandsOnEveryOperationWithItsFlags) {
  Listing qp{};
  qp.wr_start = [](ibv_qp_ex*) {};
  qp.wr_rdma_write = [](ibv_qp_ex* q, auto...) { Listing::add(q, " write"); };
  qp.wr_rdma_write_imm = [](ibv_qp_ex* q, auto...) { Listing::add(q, " write_imm"); };
  qp.wr_rdma_read = [](ibv_qp_ex* q, auto...) { Listing::add(q, " read"); };
  qp.wr_send = [](ibv_qp_ex* q) { Listing::add(q, " send"); };
  qp.wr_send_imm = [](ibv_qp_ex* q, auto...) { Listing::add(q, " send_imm"); };
  qp.wr_set_sge_list = [](ibv_qp_ex*, auto...) {};
  qp.wr_set_inline_data = [](ibv_qp_ex* q, auto...) { Listing::add(q, ":"); };
  qp.wr_set_sge = [](ibv_qp_ex* q, auto...) { Listing::add(q, ":"); };
  qp.wr_complete = [](ibv_qp_ex*) { return 0; };
  qp.wr_abort = [](ibv_qp_ex* q) { Listing::add(q, " abort"); };
  VerbsChainPoster poster(nullptr, &qp);
  ibv_sge piece{1, 8, 2};
  const auto post = [&](ibv_wr_opcode opcode, unsigned flags, int pieces) {
    ibv_send_wr* bad = nullptr;
    ibv_send_wr wr{};
    wr.opcode = opcode;
    wr.send_flags = flags;
    wr.sg_list = &piece;
    wr.num_sge = pieces;
    const int error = poster.post(&wr, &bad);
    EXPECT_EQ(bad, error ? &wr : nullptr);
    return error;
  };
  EXPECT_EQ(post(IBV_WR_RDMA_WRITE, IBV_SEND_INLINE, 1), 0);
  EXPECT_EQ(post(IBV_WR_RDMA_WRITE_WITH_IMM, 0, 0), 0);
  EXPECT_EQ(post(IBV_WR_RDMA_READ, 0, 1), 0);
  EXPECT_EQ(post(IBV_WR_SEND, 0, 1), 0);
  EXPECT_EQ(post(IBV_WR_SEND_WITH_IMM, 0, 1), 0);
  EXPECT_EQ(qp.asked, " write inline: inline write_imm read: send: send_imm:");
  EXPECT_EQ(post(IBV_WR_ATOMIC_CMP_AND_SWP, 0, 1), EINVAL);
}

}  // namespace
}  // namespace weft::testing
