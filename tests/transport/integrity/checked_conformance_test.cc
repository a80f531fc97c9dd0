// Integrity mode under the conformance suite: over shared memory and the simulated fabric, without
// faults, and with periodic bit flips in messages, including notes.
// labels: multiproc
// ctest: alone
// sanitize: long
#include <numeric>

#include "transport/conformance.h"
#include "transport/decorator.h"
#include "transport/fault.h"
#include "transport/integrity/checked.h"
#include "transport/shm/shm.h"
#include "transport/sim/sim.h"

namespace weft::testing {
namespace {

std::unique_ptr<Transport> wrap(std::unique_ptr<Transport> t, const char* fault, Rank me, int n) {
  if (fault) t = make_faulty_transport(std::move(t), fault_from(fault), me);
  return make_checked_transport(std::move(t), me, n);
}

Maker shm(std::string name, const char* fault) {
  return {std::move(name), [fault](int n) {
            return make_in_threads(n, [n, fault](Job& job, Rank me) {
              std::vector<Rank> members(static_cast<std::size_t>(n));
              std::iota(members.begin(), members.end(), 0);
              return wrap(make_shm_transport(job, one_host(n), members), fault, me, n);
            });
          }};
}

Maker sim(std::string name, const char* fault) {
  return {std::move(name), [fault](int n) {
            SimFabricOptions o;
            for (int r = 0; r < n; ++r) o.host_of_rank.push_back(r / 2);
            o.delay_us_max = 20;
            o.reorder = true;
            auto fabric = std::make_shared<SimFabric>(std::move(o));
            Endpoints out;
            for (Rank r = 0; r < n; ++r) out.ends.push_back(wrap(fabric->endpoint(r), fault, r, n));
            out.idle = [f = fabric.get()] { f->advance(); };
            out.threads = false;
            out.below = std::move(fabric);
            return out;
          }};
}

INSTANTIATE_TEST_SUITE_P(Checked, Conformance,
                         ::testing::Values(shm("Shm", nullptr),
                                           shm("ShmFlips", "flip:nth=5,every=23,repeats=0,min=1"),
                                           sim("Sim", nullptr),
                                           sim("SimFlips", "flip:nth=5,every=23,min=1")),
                         maker_name);

// ---- repeated corruption --------------------------------------------------------------------

TEST(Checked, WhatStaysCorruptIsNamed) {
  Net net(shm("", "flip:rank=1,nth=1,times=1000,min=64").make(2));
  Buffer from(5000), to(5000);
  net[0].send(1, 7, from);
  const std::uint64_t got = net[1].recv(0, 7, to);
  ASSERT_TRUE(net.until([&] { return net[1].done(got); }));
  EXPECT_EQ(net[1].result(got).code, Code::kCorrupt);
  const Status why = net[1].transport().cause(0);
  EXPECT_EQ(why.code(), Code::kCorrupt);
  for (const char* part : {"rank 0 to rank 1 over shm", "5000 bytes", "crc32c", "5 times"})
    EXPECT_NE(why.message().find(part), std::string::npos) << why.message();
  net[0].cancel(1);
}

// Every message is corrupted, but not its retransmission; without repeats=0 all would stay corrupt.
TEST(Checked, AFaultMaySpareRepeats) {
  Net net(shm("", "flip:rank=1,nth=1,every=1,repeats=0,min=64").make(2));
  Buffer from(5000), to(5000);
  for (int value = 1; value <= 20; ++value) {
    from.fill(value);
    net[0].send(1, 7, from);
    net[1].recv(0, 7, to);
    ASSERT_TRUE(net.finish());
    EXPECT_TRUE(has_pattern(to.data(), 5000, value));
  }
}

// Delays notes: over rails, a message may arrive before its note.
class NotesLast : public Decorator {
 public:
  using Decorator::Decorator;
  void post(std::span<const Transfer> transfers) noexcept override {
    for (const Transfer& t : transfers)
      if (t.kind == Transfer::Kind::kSend && t.bytes == kNoteBytes)
        held_.push_back(t);
      else
        Decorator::post({&t, 1});
  }
  std::size_t poll(std::span<Completion> out) noexcept override {
    for (const Transfer& t : std::exchange(held_, {})) Decorator::post({&t, 1});
    return Decorator::poll(out);
  }

 private:
  static constexpr std::size_t kNoteBytes = 40;
  std::vector<Transfer> held_;
};

// Communicator ids are reused.
TEST(Checked, WhatIsForgottenLeavesNoSumForTheNextOfItsTag) {
  Buffer from(3000), to(3000);
  int retried = 0;
  Net net(make_in_threads(2, [&](Job& job, Rank me) {
    return make_checked_transport(
        std::make_unique<NotesLast>(make_shm_transport(job, one_host(2), std::vector<Rank>{0, 1})),
        me, 2, [&] { ++retried; });
  }));
  ASSERT_TRUE(net.connect());
  from.fill(1);
  net[0].send(1, 7, from, 5);
  net.settle();
  net[0].cancel(5);
  net[1].transport().forget(7, 0xffff);
  from.fill(2);
  net[1].recv(0, 7, to);
  net[0].send(1, 7, from);
  ASSERT_TRUE(net.finish());
  EXPECT_TRUE(has_pattern(to.data(), 3000, 2));
  EXPECT_EQ(retried, 0);
}

TEST(Fault, TextIsChecked) {
  const Fault f = fault_from("flip:rank=3,nth=100,every=7,times=2,repeats=0,link=ucx,min=8,seed=9");
  EXPECT_EQ(f.rank, 3);
  EXPECT_EQ(f.nth, 100u);
  EXPECT_EQ(f.every, 7u);
  EXPECT_FALSE(f.repeats);
  EXPECT_EQ(f.link, "ucx");
  for (const char* bad : {"", "bend:", "flip:rank=x", "flip:rnak=1", "flip:nth"})
    EXPECT_THROW((void)fault_from(bad), Error) << bad;
}

TEST(Fault, WithoutIntegrityAFlipGoesUnseen) {  // shows that the tests above prove something
  Net net(make_in_threads(2, [](Job& job, Rank me) {
    return make_faulty_transport(make_shm_transport(job, one_host(2), std::vector<Rank>{0, 1}),
                                 fault_from("flip:rank=1"), me);
  }));
  Buffer from(5000), to(5000);
  from.fill(1);
  net[0].send(1, 7, from);
  net[1].recv(0, 7, to);
  ASSERT_TRUE(net.finish());
  EXPECT_FALSE(has_pattern(to.data(), 5000, 1));
}

}  // namespace
}  // namespace weft::testing
