// labels: multiproc
// ctest: whole
// Collectives on device memory between hosts whose cards reach it (GPUDirect). On the fake device,
// with cards that are as strict as the hardware may be: transport/device_fake_nic.h.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>

#include "support/device_ranks.h"
#include "support/ranks.h"
#include "support/temporary_folder.h"
#include "transport/device_fake.h"

namespace weft {
namespace {

using ::testing::HasSubstr;
using testing::Brake;
using testing::DeviceBuffer;
using testing::DeviceCase;
using testing::patient;
using testing::places;
using testing::run_device_case;
using testing::run_ranks;
using testing::TestStream;

constexpr Collective kSent[] = {Collective::kAllReduce,     Collective::kAllGather,
                                Collective::kReduceScatter, Collective::kBroadcast,
                                Collective::kReduce,        Collective::kGather,
                                Collective::kScatter,       Collective::kAllToAll};

class GpuDirectCollectives : public testing::OnFakeDevice {
 protected:
  void SetUp() override {
    OnFakeDevice::SetUp();
    fake_->give_nics(true);
    setenv("WEFT_GPUDIRECT", "1", 1);  // also the shortest messages
  }
  void TearDown() override {
    unsetenv("WEFT_GPUDIRECT");
    if (!fake_) return;
    fake_->give_nics(false);
    fake_->hide_from_nics(-1);
    OnFakeDevice::TearDown();
  }
  static int gpu_of(World& world) { return world.rank() % FakeDevice::kGpus; }
};

std::vector<int> hosts(int n) { return std::vector<int>(static_cast<std::size_t>(n), 1); }

// The sum of one element, so that the path that a call takes can be looked at.
std::string path_of(Communicator comm, TestStream& work, std::size_t count = 1) {
  run_device_case(comm, work, {Collective::kAllReduce, count});
  return std::string(comm.last_algorithm());
}

TEST_F(GpuDirectCollectives, EveryCollectiveTypeAndOperator) {
  for (const int n : {2, 3, 4})
    run_ranks(places(hosts(n)), patient(), [](World& world) {
      TestStream work(*device(), gpu_of(world));
      Communicator comm = world.world();
      for (const Collective collective : kSent)
        for (const std::size_t count : {std::size_t{1}, std::size_t{333}})
          for (const DType type : kAllDTypes)
            for (const RedOp op : kAllRedOps) {
              const bool reducing = reduces(collective);
              if (!reducing && (op != RedOp::kSum || count == 1)) continue;
              if (!defined(op, type)) continue;
              if (op == RedOp::kAvg && is_floating(type) && (comm.size() & (comm.size() - 1)))
                continue;
              const bool odd = (count + static_cast<std::size_t>(type)) % 2;
              run_device_case(comm, work,
                              {collective, count, type, op, odd, odd ? size_of(type) : 0,
                               static_cast<Rank>(type) % comm.size(),
                               static_cast<int>(op) % 2 == 0});
              if (::testing::Test::HasFatalFailure()) return;
              ASSERT_EQ(comm.last_algorithm(), "gpudirect") << name(collective);
            }
    });
}

// More slices than are under way at once, and a last one that is shorter; and messages so short that
// the processor would have copied them. Over two rails that stand in for each other.
TEST_F(GpuDirectCollectives, ManySlicesAndShortOnesOverTwoRails) {
  run_ranks(places(hosts(3), 2), patient(), [](World& world) {
    TestStream work(*device(), gpu_of(world));
    Communicator comm = world.world();
    for (const Collective collective : kSent) {
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

// The same bits as ranks of one host give, which add up in the order of ranks.
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
    ASSERT_TRUE(
        comm.all_reduce(data.data(), data.data(), kCount, DType::kFloat32, RedOp::kSum).ok());
    std::memcpy(got.data(), data.get().data(), bytes.size());
    for (std::size_t i = 0; i < kCount; ++i)
      ASSERT_EQ(got[i], value(0, i) + value(1, i) + value(2, i)) << i;
  });
}

TEST_F(GpuDirectCollectives, InTheOrderOfTheStreamWithoutHoldingUpTheHost) {
  run_ranks(places(hosts(2)), patient(), [](World& world) {
    TestStream work(*device(), gpu_of(world));
    Communicator comm = world.world();
    constexpr std::size_t kCount = 300'000;
    DeviceBuffer in(work, kCount * 4), out(work, kCount * 4);
    const std::vector<float> ones(kCount, 1);
    std::vector<float> got(kCount);
    {
      // Nothing on the stream moves before everything has been called.
      Brake brake(work.get());
      // Written on the stream before the call; read on it after.
      device()->copy(in.data(), ones.data(), kCount * 4, work.gpu(), work.get());
      ASSERT_TRUE(comm.on(work.get())
                      .all_reduce(in.data(), out.data(), kCount, DType::kFloat32, RedOp::kSum)
                      .ok());
      device()->copy(got.data(), out.data(), kCount * 4, work.gpu(), work.get());
      brake.release();
      work.wait();
    }
    EXPECT_EQ(got, std::vector<float>(kCount, 2));
    EXPECT_EQ(comm.last_algorithm(), "gpudirect");
  });
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

// One card that does not reach its GPU, and nobody sends by theirs.
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
  // Ranks of one host do not reach each other by a card.
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
      ASSERT_TRUE(world.job().all_gather("").size() == 3);
      if (world.rank() == 1) fake_device()->fail_next(call);
      ASSERT_TRUE(world.job().all_gather("").size() == 3);
      const Status s =
          comm.all_reduce(data.data(), data.data(), kCount, DType::kFloat32, RedOp::kSum);
      EXPECT_FALSE(s.ok());
      EXPECT_THAT(s.to_string(), HasSubstr(std::string(call) + " on fake GPU"));
    });
}

}  // namespace
}  // namespace weft
