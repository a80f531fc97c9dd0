// labels: multiproc
// ctest: whole
// sanitize: no
// Collectives on device memory between hosts whose NICs reach it (GPUDirect). On the fake device,
// with NICs that are as strict as the hardware may be: tests/support/fakes/fake_nic.cc.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>

#include "coll/runtime/internals.h"
#include "support/device/device_cards.h"
#include "support/process/temporary_folder.h"

namespace weft {
namespace {

using testing::DeviceBuffer;
using ::testing::HasSubstr;
using testing::kGpuHierarchical;
using testing::path_of;
using testing::patient;
using testing::places;
using testing::run_device_case;
using testing::run_every_collective;
using testing::run_ranks;
using testing::sum_in_stream_order;
using testing::TestStream;

class GpuDirectCollectives : public testing::OnFakeCards {};

std::vector<int> hosts(int n) { return std::vector<int>(static_cast<std::size_t>(n), 1); }

TEST_F(GpuDirectCollectives, EveryCollectiveTypeAndOperator) {
  for (const int n : {2, 3, 4}) run_every_collective(places(hosts(n)), "gpudirect", true);
}

// More slices than are under way at once, and a last one that is shorter; and messages so short
// that the processor would have copied them. Over two rails that stand in for each other.
TEST_F(GpuDirectCollectives, ManySlicesAndShortOnesOverTwoRails) {
  run_ranks(places(hosts(3), 2), patient(), [](World& world) {
    TestStream work(*device(), gpu_of(world));
    Communicator comm = world.world();
    for (const Collective collective : kGpuHierarchical) {
      // The larger buffer has 12 MB: 5 slices and most of one.
      const std::size_t count = 3'000'000 / (by_blocks(collective) ? 3 : 1) + 7;
      const auto kind = static_cast<int>(collective);
      run_device_case(comm, work,
                      {collective, count, DType::kFloat32, RedOp::kSum, kind % 2 == 0, 4,
                       static_cast<Rank>(kind % 3)});
      for (const bool in_place : {false, true})
        run_device_case(comm, work,
                        {collective, 333, DType::kFloat32, RedOp::kSum, in_place, 4,
                         static_cast<Rank>(in_place ? 2 : 0)});
      ASSERT_EQ(comm.last_algorithm(), "gpudirect") << name(collective);
      if (::testing::Test::HasFatalFailure()) return;
    }
  });
}

// In deterministic mode the same bits as on one host, where ranks add up in their order.
TEST_F(GpuDirectCollectives, AddsInTheOrderOfRanks) {
  run_ranks(places(hosts(3)), patient(), [](World& world) {
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

TEST_F(GpuDirectCollectives, InTheOrderOfTheStreamWithoutHoldingUpTheHost) {
  sum_in_stream_order(places(hosts(2)), kNoRank);
}

TEST_F(GpuDirectCollectives, InAGraphAtEveryReplay) {
  run_ranks(places(hosts(2)), patient(), [](World& world) {
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

// ---- who decides ---------------------------------------------------------------------------

// One NIC that does not reach its GPU, and nobody sends by theirs.
TEST_F(GpuDirectCollectives, OneRankThatCannotIsAllOfThem) {
  fake_->hide_from_nics(1);
  run_ranks(places(hosts(3)), patient(), [](World& world) {
    TestStream of_own(*device(), gpu_of(world)), reached(*device(), 0);
    EXPECT_EQ(path_of(world.world(), of_own), "staged");
    EXPECT_EQ(path_of(world.world(), reached), "gpudirect");
  });
}

TEST_F(GpuDirectCollectives, StagedWhereTheProcessorMustSeeTheBytesOrIsAskedTo) {
  WorldOptions checked = patient();
  checked.integrity = true;
  run_ranks(places(hosts(2)), checked, [](World& world) {
    TestStream work(*device());
    EXPECT_EQ(path_of(world.world(), work, 1000), "staged");
  });
  // Who has the same place on each host, where hosts have unequal numbers of ranks?
  run_ranks(places({2, 1}), patient(), [](World& world) {
    TestStream work(*device());
    EXPECT_EQ(path_of(world.world(), work, 1000), "staged");
  });
  for (const char* text : {"off", "5000"}) {
    setenv("WEFT_GPUDIRECT", text, 1);
    run_ranks(places(hosts(2)), patient(), [&](World& world) {
      TestStream work(*device());
      EXPECT_EQ(path_of(world.world(), work, 1000), "staged") << text;
      EXPECT_EQ(path_of(world.world(), work, 1250), *text == '5' ? "gpudirect" : "staged");
    });
  }
  setenv("WEFT_GPUDIRECT", "1", 1);
  run_ranks(places(hosts(2)), patient(), [&](World& world) {
    TestStream work(*device());
    Communicator comm = world.world();
    comm.set_algorithm(Collective::kAllReduce, "ring");
    EXPECT_EQ(path_of(comm, work, 1000), "ring");
  });
}

// Who looks for what takes so long sees what takes so long.
TEST_F(GpuDirectCollectives, ATraceChangesNothing) {
  const testing::TemporaryFolder folder;
  setenv("WEFT_TRACE", (folder / "t.json").c_str(), 1);
  run_ranks(places(hosts(2)), patient(), [](World& world) {
    TestStream work(*device());
    EXPECT_EQ(path_of(world.world(), work, 1000), "gpudirect");
  });
  unsetenv("WEFT_TRACE");
}

TEST_F(GpuDirectCollectives, AWordThatMeansNothingIsRefusedByName) {
  setenv("WEFT_GPUDIRECT", "maybe", 1);
  run_ranks(places(hosts(2)), patient(), [&](World& world) {
    TestStream work(*device());
    DeviceBuffer data(work, 400);
    const Status s =
        world.world().all_reduce(data.data(), data.data(), 100, DType::kFloat32, RedOp::kSum);
    EXPECT_THAT(s.to_string(), HasSubstr("WEFT_GPUDIRECT=maybe"));
  });
}

// ---- failures ------------------------------------------------------------------------------

// With messages under way to peers, who hear of it too.
TEST_F(GpuDirectCollectives, AFailureOfTheGpuReachesAllRanks) {
  for (const char* call : {"copy", "launch", "flush"})
    run_ranks(places(hosts(3)), patient(), [&](World& world) {
      TestStream work(*device(), gpu_of(world));
      constexpr std::size_t kCount = 4'000'000;  // several slices
      DeviceBuffer data(work, kCount * 4);
      Communicator comm = world.world();
      ASSERT_EQ(path_of(comm, work), "gpudirect");
      ASSERT_TRUE(job_of(world).all_gather("").size() == 3);
      if (world.rank() == 1) fake_device()->fail_next(call);
      ASSERT_TRUE(job_of(world).all_gather("").size() == 3);
      const Status s =
          comm.all_reduce(data.data(), data.data(), kCount, DType::kFloat32, RedOp::kSum);
      EXPECT_FALSE(s.ok());
      EXPECT_THAT(s.to_string(), HasSubstr(std::string(call) + " on fake GPU"));
    });
}

}  // namespace
}  // namespace weft
