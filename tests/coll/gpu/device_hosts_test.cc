// labels: multiproc
// ctest: whole
// sanitize: no
// Collectives on device memory of several ranks on each of several hosts, whose NICs reach it:
// ranks of a host use each other's memory, and those with the same place on their hosts the NICs.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>

#include "coll/api/metrics.h"
#include "coll/runtime/internals.h"
#include "support/device/device_cards.h"

namespace weft {
namespace {

using testing::DeviceBuffer;
using testing::kGpuHierarchical;
using testing::path_of;
using testing::patient;
using testing::places;
using testing::run_device_case;
using testing::run_every_collective;
using testing::run_ranks;
using testing::sum_in_stream_order;
using testing::TestStream;

class GpusOfHosts : public testing::OnFakeCards {};

TEST_F(GpusOfHosts, EveryCollectiveTypeAndOperator) {
  run_every_collective(places({2, 2}), "gpudirect", false);
  run_every_collective(places({3, 3}), "gpudirect", false);
  run_every_collective(places({2, 2, 2}), "gpudirect", false);
}

// The ranks of a host need not follow each other.
TEST_F(GpusOfHosts, RanksInTurnsOverTheHosts) {
  std::vector<Place> where = places({2, 2, 2});
  for (std::size_t r = 0; r < where.size(); ++r) where[r].host = "host" + std::to_string(r % 3);
  run_every_collective(where, "gpudirect", false);
}

// More slices than are under way at once, and a last one that is shorter; `shorter`: other lengths.
void many_slices(World& world, const char* path, std::vector<std::size_t> shorter) {
  TestStream work(*device(), world.rank() % FakeDevice::kGpus);
  Communicator comm = world.world();
  for (const Collective collective : kGpuHierarchical) {
    const Rank roots = rooted(collective) ? comm.size() : 1;
    for (Rank root = 0; root < roots; ++root)
      for (const bool in_place : {false, true}) {
        if (in_place && collective == Collective::kAllToAll) continue;
        std::vector<std::size_t> counts = shorter;
        if (root == (in_place ? 0 : roots - 1))
          counts.push_back(by_blocks(collective) ? 1'400'003 : 5'300'003);
        for (const std::size_t count : counts) {
          run_device_case(comm, work,
                          {collective, count, DType::kFloat32, RedOp::kSum, in_place, 4, root});
          if (::testing::Test::HasFatalFailure()) return;
          ASSERT_EQ(comm.last_algorithm(), path) << name(collective);
        }
      }
  }
}

// Of messages so short that some places have nothing to send, too. Over two rails.
TEST_F(GpusOfHosts, ManySlicesAndShortOnesOverTwoRails) {
  run_ranks(places({2, 2}, 2), patient(), [](World& world) {
    many_slices(world, "gpudirect", {3, 65, 1021});
  });
}

// What an all_reduce of so many floats sends to other hosts, by world rank.
std::map<Rank, std::uint64_t> sent_by_sum(World& world, Communicator comm, std::size_t count) {
  TestStream work(*device(), world.rank() % FakeDevice::kGpus);
  const auto sent = [&] {
    std::map<Rank, std::uint64_t> bytes;
    for (const Metrics::Traffic& t : world.metrics().traffic)
      if (t.link != "shm") bytes[t.peer] += t.bytes_sent;
    return bytes;
  };
  EXPECT_EQ(path_of(comm, work), "gpudirect");
  std::map<Rank, std::uint64_t> before = sent(), bytes;
  run_device_case(comm, work, {Collective::kAllReduce, count});
  for (const auto& [peer, all] : sent()) bytes[peer] = all - before[peer];
  return bytes;
}

// Of an all_reduce over two hosts each rank sends its share, once, and to one rank only: the one at
// the same place of the other host.
TEST_F(GpusOfHosts, EachRankSendsItsShareAlongItsRail) {
  constexpr std::size_t kCount = 1 << 20;
  run_ranks(places({4, 4}), patient(), [](World& world) {
    for (const auto& [peer, bytes] : sent_by_sum(world, world.world(), kCount)) {
      if (peer == (world.rank() + 4) % 8) {
        EXPECT_GE(bytes, kCount * 4 / 4);
      }
      // What ranks agree about, and signatures.
      EXPECT_LT(bytes, (peer == (world.rank() + 4) % 8 ? kCount * 4 / 4 : 0) + 100'000);
    }
  });
}

// A communicator may have the ranks of a host in any order: those on one rail exchange all the
// same.
TEST_F(GpusOfHosts, ToTheRankOnTheSameRailWhateverTheOrderOfRanks) {
  constexpr std::size_t kCount = 1 << 20;
  run_ranks(places({2, 2}, 2), patient(), [](World& world) {
    const Rank me = world.rank();
    ASSERT_EQ(world.topology().rail(me), me % 2);
    const Communicator turned = world.world().split(0, me < 2 ? me : 10 - me);
    for (const auto& [peer, bytes] : sent_by_sum(world, turned, kCount)) {
      if (peer % 2 == me % 2) {
        EXPECT_GE(bytes, kCount * 4 / 2);
      }
      if (peer % 2 != me % 2) {
        EXPECT_LT(bytes, 100'000u);
      }
    }
  });
}

TEST_F(GpusOfHosts, InTheOrderOfTheStreamWithoutHoldingUpTheHost) {
  sum_in_stream_order(places({2, 2}), 3);
}

// Buffers of two calls that follow each other at once: nobody begins the second one while another
// is at work in its buffers for the first.
TEST_F(GpusOfHosts, CallsThatFollowEachOtherAtOnce) {
  run_ranks(places({2, 2}), patient(), [](World& world) {
    TestStream work(*device(), gpu_of(world));
    Communicator comm = world.world();
    constexpr std::size_t kCount = 70'000;
    DeviceBuffer data(work, kCount * 4);
    std::vector<float> values(kCount, 1);
    device()->copy(data.data(), values.data(), kCount * 4, work.gpu(), work.get());
    for (int i = 0; i < 8; ++i)
      ASSERT_TRUE(comm.on(work.get())
                      .all_reduce(data.data(), data.data(), kCount, DType::kFloat32, RedOp::kSum)
                      .ok());
    device()->copy(values.data(), data.data(), kCount * 4, work.gpu(), work.get());
    work.wait();
    EXPECT_EQ(values, std::vector<float>(kCount, 65536));
  });
}

// ---- through host memory -------------------------------------------------------------------

class GpusOfHostsWithoutCards : public testing::OnFakeDevice {
 protected:
  void SetUp() override {
    OnFakeDevice::SetUp();
    pageable_ = fake_->pageable_operands();
  }
  void TearDown() override {
    EXPECT_EQ(fake_->pageable_operands(), pageable_);
    OnFakeDevice::TearDown();
  }
  std::size_t pageable_ = 0;
};

TEST_F(GpusOfHostsWithoutCards, EveryCollectiveTypeAndOperator) {
  run_every_collective(places({2, 2}), "staged_hierarchical", false, 64 << 10);
  run_every_collective(places({3, 3}), "staged_hierarchical", false, 64 << 10);
}

TEST_F(GpusOfHostsWithoutCards, ManySlices) {
  run_ranks(places({2, 2}), patient(), [](World& world) {
    many_slices(world, "staged_hierarchical", {20'000, 100'003});
  });
}

// Some ranks' NICs reach their GPU, and others' do not: all go through host memory.
TEST_F(GpusOfHosts, OneCardThatDoesNotReachItsGpuIsAllOfThem) {
  fake_->hide_from_nics(1);
  run_ranks(places({2, 2}), patient(), [](World& world) {
    TestStream work(*device(), gpu_of(world));
    EXPECT_EQ(path_of(world.world(), work, 20'000), "staged_hierarchical");
    EXPECT_EQ(path_of(world.world(), work, 1000), "staged");
  });
}

TEST_F(GpusOfHostsWithoutCards, WhatMustBeCheckedIsStagedByTheHost) {
  WorldOptions checked = patient();
  checked.integrity = true;
  run_ranks(places({2, 2}), checked, [](World& world) {
    TestStream work(*device());
    EXPECT_EQ(path_of(world.world(), work, 20'000), "staged");
  });
}

// ---- who decides ---------------------------------------------------------------------------

TEST_F(GpusOfHosts, StagedWhereItCannotBe) {
  // The GPUs of a host do not reach each other.
  fake_->separate(true);
  run_ranks(places({2, 2}), patient(), [](World& world) {
    TestStream work(*device(), gpu_of(world));
    EXPECT_EQ(path_of(world.world(), work, 1000), "staged");
  });
  fake_->separate(false);
  // Sums by hosts are not in the order of ranks; what is only moved has no order.
  WorldOptions deterministic = patient();
  deterministic.deterministic = true;
  run_ranks(places({2, 2}), deterministic, [](World& world) {
    TestStream work(*device(), gpu_of(world));
    Communicator comm = world.world();
    EXPECT_EQ(path_of(comm, work, 1000), "staged");
    run_device_case(comm, work, {Collective::kAllGather, 1000});
    EXPECT_EQ(comm.last_algorithm(), "gpudirect");
  });
  // A place that not all hosts have.
  run_ranks(places({3, 2}), patient(), [](World& world) {
    TestStream work(*device(), gpu_of(world));
    EXPECT_EQ(path_of(world.world(), work, 1000), "staged");
  });
  // A rail of its own, and a host of its own, are other communicators.
  run_ranks(places({2, 2}), patient(), [](World& world) {
    TestStream work(*device(), gpu_of(world));
    EXPECT_EQ(path_of(world.rail(), work, 1000), "gpudirect");
    EXPECT_EQ(path_of(world.host(), work, 1000), "device");
  });
  // A rank that is alone on its host sends nothing: its NIC is not asked for memory.
  run_ranks(places({1, 1}), patient(), [](World& world) {
    TestStream work(*device(), gpu_of(world));
    Communicator alone = world.host();
    run_device_case(alone, work,
                    {.collective = Collective::kAllReduce, .count = 1000, .on_stream = false});
    EXPECT_EQ(alone.last_algorithm(), "device");
  });
}

// With messages under way to peers, who hear of it too.
TEST_F(GpusOfHosts, AFailureOfTheGpuReachesAllRanks) {
  for (const char* call : {"copy", "launch", "flush"})
    run_ranks(places({2, 2}), patient(), [&](World& world) {
      TestStream work(*device(), gpu_of(world));
      constexpr std::size_t kCount = 4'000'000;
      DeviceBuffer data(work, kCount * 4);
      Communicator comm = world.world();
      ASSERT_EQ(path_of(comm, work), "gpudirect");
      ASSERT_TRUE(job_of(world).all_gather("").size() == 4);
      const Collective c = *call == 'c' ? Collective::kBroadcast : Collective::kAllReduce;
      if (world.rank() == 1) fake_device()->fail_next(call);
      ASSERT_TRUE(job_of(world).all_gather("").size() == 4);
      const Status s = testing::call(comm, {c, kCount}, data.data(), data.data());
      EXPECT_FALSE(s.ok());
      EXPECT_THAT(s.to_string(), ::testing::HasSubstr(std::string(call) + " on fake GPU"));
    });
}

}  // namespace
}  // namespace weft
