// labels: multiproc
// ctest: whole
// sanitize: no
// GPUDirect collectives on device memory between hosts, with one rank or several per host: ranks of
// a host access each other's memory, and ranks with the same local index use the NICs. On the fake
// device, with NICs as strict as real hardware may be: tests/support/fakes/fake_nic.cc.
// device_collective_test.cc runs every collective on these paths.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <cstdlib>
#include <map>
#include <thread>

#include "coll/api/metrics.h"
#include "coll/runtime/internals.h"
#include "support/device/device_cards.h"
#include "support/process/temporary_folder.h"

namespace weft {
namespace {

using testing::Brake;
using testing::DeviceBuffer;
using ::testing::HasSubstr;
using testing::path_of;
using testing::patient;
using testing::places;
using testing::run_device_case;
using testing::run_ranks;
using testing::TestStream;

class GpuDirectCollectives : public testing::OnFakeCards {};

// Deterministic mode gives the same bits as on one host, where sums are in rank order.
TEST_F(GpuDirectCollectives, AddsInTheOrderOfRanks) {
  run_ranks(places({1, 1, 1}), patient(), [](World& world) {
    TestStream work(*device(), gpu_of(world));
    constexpr std::size_t kCount = 1000;
    const auto value = [](Rank r, std::size_t i) {
      return (r == 1 ? -1.0f : 1.0f) * (1e7f + static_cast<float>(i) * 0.37f) / (r == 2 ? 3e6f : 1);
    };
    std::vector<float> mine(kCount), got(kCount);
    for (std::size_t i = 0; i < kCount; ++i) mine[i] = value(world.rank(), i);
    DeviceBuffer data(work, kCount * 4);
    std::vector<std::byte> bytes(kCount * 4);
    std::memcpy(bytes.data(), mine.data(), bytes.size());
    data.put(bytes);
    Communicator comm = world.world();
    comm.set_deterministic(true);
    ASSERT_TRUE(
        comm.all_reduce(data.data(), data.data(), kCount, DType::kFloat32, RedOp::kSum).ok());
    ASSERT_EQ(comm.last_algorithm(), "gpudirect");
    std::memcpy(got.data(), data.get().data(), bytes.size());
    for (std::size_t i = 0; i < kCount; ++i)
      ASSERT_EQ(got[i], value(0, i) + value(1, i) + value(2, i)) << i;
  });
}

// A sum on a stream that reaches it only after all calls returned, last on rank `last`.
inline void sum_in_stream_order(const std::vector<Place>& where, Rank last) {
  run_ranks(where, patient(), [&](World& world) {
    TestStream work(*device(), world.rank() % FakeDevice::kGpus);
    Communicator comm = world.world();
    constexpr std::size_t kCount = 300'000;
    DeviceBuffer in(work, kCount * 4), out(work, kCount * 4);
    const std::vector<float> ones(kCount, 1);
    std::vector<float> got(kCount);
    const auto sum = [&] {
      return comm.on(work.get())
          .all_reduce(in.data(), out.data(), kCount, DType::kFloat32, RedOp::kSum);
    };
    {
      // Blocks the stream until all calls have been made.
      Brake brake(work.get());
      // Written on the stream before the call; read on it after.
      device()->copy(in.data(), ones.data(), kCount * 4, work.gpu(), work.get());
      ASSERT_TRUE(sum().ok());
      device()->copy(got.data(), out.data(), kCount * 4, work.gpu(), work.get());
      if (world.rank() == last) std::this_thread::sleep_for(std::chrono::milliseconds(50));
      brake.release();
      work.wait();
    }
    EXPECT_EQ(got, std::vector<float>(kCount, static_cast<float>(where.size())));
    EXPECT_EQ(comm.last_algorithm(), "gpudirect");
  });
}

TEST_F(GpuDirectCollectives, InTheOrderOfTheStreamWithoutHoldingUpTheHost) {
  sum_in_stream_order(places({1, 1}), kNoRank);
  sum_in_stream_order(places({2, 2}), 3);
}

// Buffers of two consecutive calls: no rank starts the second call while a peer still uses its
// buffers of the first.
TEST_F(GpuDirectCollectives, CallsThatFollowEachOtherAtOnce) {
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

TEST_F(GpuDirectCollectives, InAGraphAtEveryReplay) {
  run_ranks(places({1, 1}), patient(), [](World& world) {
    TestStream work(*device(), gpu_of(world));
    Communicator comm = world.world();
    DeviceBuffer data(work, 4000);
    std::vector<std::byte> bytes(4000);
    std::vector<float> values(1000, 1);
    std::memcpy(bytes.data(), values.data(), bytes.size());
    data.put(bytes);
    FakeDevice& fake = *fake_device();
    fake.begin_capture(work.get());
    ASSERT_TRUE(comm.on(work.get())
                    .all_reduce(data.data(), data.data(), 1000, DType::kFloat32, RedOp::kSum)
                    .ok());
    const FakeDevice::Graph graph = fake.end_capture(work.get());
    for (int i = 0; i < 3; ++i) {
      fake.launch_graph(graph, work.get());
      work.wait();
    }
    std::memcpy(values.data(), data.get().data(), bytes.size());
    EXPECT_EQ(values, std::vector<float>(1000, 8));
    EXPECT_EQ(comm.last_algorithm(), "gpudirect");
  });
}

// ---- traffic

// The bytes that each world rank sends to other hosts in an all_reduce of `count` floats.
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

// In an all_reduce over two hosts, each rank sends its share once, only to the rank with the same
// local index on the other host.
TEST_F(GpuDirectCollectives, EachRankSendsItsShareAlongItsRail) {
  constexpr std::size_t kCount = 1 << 20;
  run_ranks(places({4, 4}), patient(), [](World& world) {
    for (const auto& [peer, bytes] : sent_by_sum(world, world.world(), kCount)) {
      if (peer == (world.rank() + 4) % 8) {
        EXPECT_GE(bytes, kCount * 4 / 4);
      }
      // Allows for agreement and signatures.
      EXPECT_LT(bytes, (peer == (world.rank() + 4) % 8 ? kCount * 4 / 4 : 0) + 100'000);
    }
  });
}

// A communicator may have a host's ranks in any order: ranks on one rail still exchange.
TEST_F(GpuDirectCollectives, ToTheRankOnTheSameRailWhateverTheOrderOfRanks) {
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

// ---- the choice of a path

// Facts that decide between GPUDirect and staging, and the resulting path of an all_reduce.
enum DecisionFlags : unsigned {
  kNoNics = 1,
  kOneHidden = 2,
  kApart = 4,
  kIntegrity = 8,
  kOrder = 16
};
struct Decision {
  const char* name;
  std::vector<int> hosts;
  std::size_t count;
  const char* path;
  unsigned flags = 0;
  const char* gpudirect = "1";  // WEFT_GPUDIRECT
  const char* algorithm = "auto";
  Communicator (*of)(World&) = [](World& world) { return world.world(); };
};
void PrintTo(const Decision& d, std::ostream* os) { *os << d.name; }

Communicator rail_of(World& world) { return world.rail(); }
Communicator host_of(World& world) { return world.host(); }

const Decision kDecisions[] = {
    {"everything_reaches", {1, 1}, 1000, "gpudirect"},
    {"one_rank_that_cannot_is_all", {1, 1, 1}, 1, "staged", kOneHidden},
    {"one_rank_of_several_that_cannot", {2, 2}, 20'000, "staged_hierarchical", kOneHidden},
    {"one_rank_of_several_that_cannot_short", {2, 2}, 1000, "staged", kOneHidden},
    {"the_processor_must_see_the_bytes", {1, 1}, 1000, "staged", kIntegrity},
    {"it_must_of_several_ranks", {2, 2}, 20'000, "staged", kNoNics | kIntegrity},
    // With unequal numbers of ranks, local indices do not pair up.
    {"unequal_hosts", {2, 1}, 1000, "staged"},
    {"unequal_hosts_of_several", {3, 2}, 1000, "staged"},
    {"gpus_of_a_host_apart", {2, 2}, 1000, "staged", kApart},
    // Hierarchical sums are not in rank order.
    {"order_of_ranks", {2, 2}, 1000, "staged", kOrder},
    {"turned_off", {1, 1}, 1250, "staged", 0, "off"},
    {"shorter_than_asked_for", {1, 1}, 1000, "staged", 0, "5000"},
    {"as_long_as_asked_for", {1, 1}, 1250, "gpudirect", 0, "5000"},
    {"a_named_algorithm", {1, 1}, 1000, "ring", 0, "1", "ring"},
    // Communicators of a single rail and of a single host.
    {"a_rail", {2, 2}, 1000, "gpudirect", 0, "1", "auto", rail_of},
    {"a_host", {2, 2}, 1000, "device", 0, "1", "auto", host_of}};

class GpuDirectDecisions : public testing::OnFakeCards,
                           public ::testing::WithParamInterface<Decision> {};

TEST_P(GpuDirectDecisions, AreTheSameOnAllRanks) {
  const Decision& d = GetParam();
  fake_->give_nics(!(d.flags & kNoNics));
  fake_->hide_from_nics(d.flags & kOneHidden ? 1 : -1);
  fake_->separate(d.flags & kApart);
  setenv("WEFT_GPUDIRECT", d.gpudirect, 1);
  WorldOptions options = patient();
  options.integrity = d.flags & kIntegrity;
  options.deterministic = d.flags & kOrder;
  run_ranks(places(d.hosts), options, [&](World& world) {
    TestStream work(*device(), gpu_of(world));
    Communicator comm = d.of(world);
    comm.set_algorithm(Collective::kAllReduce, d.algorithm);
    EXPECT_EQ(path_of(comm, work, d.count), d.path);
  });
}

INSTANTIATE_TEST_SUITE_P(Of, GpuDirectDecisions, ::testing::ValuesIn(kDecisions),
                         [](const auto& info) { return std::string(info.param.name); });

// The decision depends on the buffers and on the operation.
TEST_F(GpuDirectCollectives, OneCallIsDecidedLikeThisAndTheNextLikeThat) {
  fake_->hide_from_nics(1);
  run_ranks(places({1, 1, 1}), patient(), [](World& world) {
    TestStream of_own(*device(), gpu_of(world)), reached(*device(), 0);
    EXPECT_EQ(path_of(world.world(), of_own), "staged");
    EXPECT_EQ(path_of(world.world(), reached), "gpudirect");
  });
  fake_->hide_from_nics(-1);
  WorldOptions deterministic = patient();
  deterministic.deterministic = true;
  run_ranks(places({2, 2}), deterministic, [](World& world) {  // moving data has no order
    TestStream work(*device(), gpu_of(world));
    Communicator comm = world.world();
    EXPECT_EQ(path_of(comm, work, 1000), "staged");
    run_device_case(comm, work, {Collective::kAllGather, 1000});
    EXPECT_EQ(comm.last_algorithm(), "gpudirect");
  });
  // A rank alone on its host sends nothing: its NIC needs no memory registration.
  run_ranks(places({1, 1}), patient(), [](World& world) {
    TestStream work(*device(), gpu_of(world));
    Communicator alone = world.host();
    run_device_case(alone, work,
                    {.collective = Collective::kAllReduce, .count = 1000, .on_stream = false});
    EXPECT_EQ(alone.last_algorithm(), "device");
  });
}

// Tracing changes no decision.
TEST_F(GpuDirectCollectives, ATraceChangesNothing) {
  const testing::TemporaryFolder folder;
  setenv("WEFT_TRACE", (folder / "t.json").c_str(), 1);
  run_ranks(places({1, 1}), patient(), [](World& world) {
    TestStream work(*device());
    EXPECT_EQ(path_of(world.world(), work, 1000), "gpudirect");
  });
  unsetenv("WEFT_TRACE");
}

TEST_F(GpuDirectCollectives, AWordThatMeansNothingIsRefusedByName) {
  setenv("WEFT_GPUDIRECT", "maybe", 1);
  run_ranks(places({1, 1}), patient(), [&](World& world) {
    TestStream work(*device());
    DeviceBuffer data(work, 400);
    const Status s =
        world.world().all_reduce(data.data(), data.data(), 100, DType::kFloat32, RedOp::kSum);
    EXPECT_THAT(s.to_string(), HasSubstr("WEFT_GPUDIRECT=maybe"));
  });
}

// ---- failures

// With messages to peers pending, which get the error, too.
TEST_F(GpuDirectCollectives, AFailureOfTheGpuReachesAllRanks) {
  for (const std::vector<int>& hosts : {std::vector<int>{1, 1, 1}, {2, 2}})
    for (const char* call : {"copy", "launch", "flush"})
      run_ranks(places(hosts), patient(), [&](World& world) {
        TestStream work(*device(), gpu_of(world));
        constexpr std::size_t kCount = 4'000'000;  // several slices
        DeviceBuffer data(work, kCount * 4);
        Communicator comm = world.world();
        ASSERT_EQ(path_of(comm, work), "gpudirect");
        const auto n = static_cast<std::size_t>(comm.size());
        ASSERT_TRUE(job_of(world).all_gather("").size() == n);
        const bool broadcasts = *call == 'c' && n == 4;
        const Collective c = broadcasts ? Collective::kBroadcast : Collective::kAllReduce;
        if (world.rank() == 1) fake_device()->fail_next(call);
        ASSERT_TRUE(job_of(world).all_gather("").size() == n);
        const Status s = testing::call(comm, {c, kCount}, data.data(), data.data());
        EXPECT_FALSE(s.ok());
        EXPECT_THAT(s.to_string(), HasSubstr(std::string(call) + " on fake GPU"));
      });
}

}  // namespace
}  // namespace weft
