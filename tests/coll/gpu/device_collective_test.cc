// labels: multiproc
// ctest: whole
// sanitize: long
// Every collective, type and operator on device memory: direct between ranks, staged through host
// memory, between hosts, and by NICs that reach it, on the fake device. device_stream_test.cc tests
// stream order, device_uneven_test.cc blocks of different sizes, and device_slices_test.cc
// messages.
#include <gtest/gtest.h>

#include "coll/api/metrics.h"
#include "coll/runtime/internals.h"
#include "support/device/device_cards.h"
#include "support/fakes/fake_device.h"
#include "support/jobs/faults.h"
#include "support/jobs/ranks.h"

namespace weft {
namespace {

using testing::DeviceBuffer;
using testing::kInTurns;
using testing::kNics;
using testing::kSeparate;
using testing::patient;
using testing::places;
using testing::run_device_case;
using testing::run_ranks;
using testing::TestStream;
using testing::Wiring;

class DeviceCollectives : public testing::OnFakeDevice {};

// ---- every collective on every path
// --------------------------------------------------------------

class DevicePaths : public testing::OnFakeCards, public ::testing::WithParamInterface<Wiring> {};

constexpr std::size_t kFewSlices = (5u << 20) / 4 + 13, kManySlices = 5'300'003;

const Wiring kWirings[] = {
    {"direct1", {1}, ""},
    {"direct2", {2}, "device", 0, kFewSlices},
    {"direct3", {3}, "device"},
    {"direct4", {4}, "device", 0, kFewSlices},
    {"direct8", {8}, "device"},
    {"separate2", {2}, "staged", kSeparate, kFewSlices},
    {"separate3", {3}, "staged", kSeparate, kFewSlices},
    {"staged_2x2", {2, 2}, "staged", 0, 0, 2},
    // With short messages some ranks send no bytes.
    {"nics_1x2", {1, 1}, "gpudirect", kNics},
    {"nics_1x3", {1, 1, 1}, "gpudirect", kNics, 3'000'021, 2},
    {"nics_1x4", {1, 1, 1, 1}, "gpudirect", kNics},
    {"nics_2x2", {2, 2}, "gpudirect", kNics, kManySlices, 2},
    {"nics_3x3", {3, 3}, "gpudirect", kNics},
    {"nics_2x2x2", {2, 2, 2}, "gpudirect", kNics},
    {"nics_in_turns", {2, 2, 2}, "gpudirect", kNics | kInTurns},
    // Long enough for the hierarchical path through host memory.
    {"hosts_2x2", {2, 2}, "staged_hierarchical", 0, kManySlices, 1, 64 << 10},
    {"hosts_3x3", {3, 3}, "staged_hierarchical", 0, 0, 1, 64 << 10}};

TEST_P(DevicePaths, EveryCollectiveTypeAndOperator) {
  const Wiring& wiring = GetParam();
  fake_->give_nics(wiring.flags & kNics);
  fake_->separate(wiring.flags & kSeparate);
  const std::size_t pageable = fake_->pageable_operands();
  const auto cases = testing::device_cases(wiring);
  run_ranks(testing::places(wiring), patient(),
            [&](World& world) { run_device_cases(world, wiring, cases); });
  if (wiring.bytes) {
    EXPECT_EQ(fake_->pageable_operands(), pageable);
  }
}

INSTANTIATE_TEST_SUITE_P(Wirings, DevicePaths, ::testing::ValuesIn(kWirings),
                         [](const auto& info) { return std::string(info.param.name); });

// Ranks that read each other's memory send nothing to check: in integrity mode everything is
// staged, and corrupted messages are retransmitted.
TEST_F(DeviceCollectives, IntegrityIsNotLeftOut) {
  WorldOptions options = patient();
  options.integrity = true;
  const testing::Faults faults("flip:nth=3,every=23,repeats=0,min=64");
  std::atomic<std::uint64_t> retries{0};
  const Wiring wiring{"integrity", {2}, "staged", 0, 300'007};
  const auto cases = testing::device_cases(wiring);
  run_ranks(testing::places(wiring), options, [&](World& world) {
    run_device_cases(world, wiring, cases);
    retries += world.metrics().retries;
  });
  EXPECT_GT(retries.load(), 0u);
}

// ---- kinds of memory
// -----------------------------------------------------------------------------

TEST_F(DeviceCollectives, ANamedAlgorithmRunsOnTheHost) {
  run_ranks(places({4}), patient(), [](World& world) {
    TestStream work(*device());
    Communicator comm = world.world();
    for (const char* algorithm : {"ring", "recursive_doubling", "direct"}) {
      comm.set_algorithm(Collective::kAllReduce, algorithm);
      run_device_case(comm, work, {Collective::kAllReduce, 5000});
      EXPECT_EQ(comm.last_algorithm(), algorithm);
    }
  });
}

// A rank between root and leaf has blocks of several ranks in one message, and no input of its own.
TEST_F(DeviceCollectives, ATreePassesOnBlocksOfOthers) {
  run_ranks(places({2, 2}), patient(), [](World& world) {
    TestStream work(*device(), world.rank());
    Communicator comm = world.world();
    comm.set_algorithm(Collective::kScatter, "tree");
    for (Rank root = 0; root < 4; ++root)
      run_device_case(
          comm, work,
          {.collective = Collective::kScatter, .count = 333, .type = DType::kInt64, .root = root});
  });
}

TEST_F(DeviceCollectives, ManagedMemoryIsTakenAsItIs) {
  run_ranks(places({2}), patient(), [](World& world) {
    FakeDevice& fake = *fake_device();
    TestStream work(fake);
    auto* managed = static_cast<float*>(fake.alloc_managed(4000));
    DeviceBuffer out(work, 4000);
    std::fill_n(managed, 1000, 1.0f);
    Communicator comm = world.world();
    ASSERT_TRUE(comm.all_reduce(managed, managed, 1000, DType::kFloat32, RedOp::kSum).ok());
    EXPECT_EQ(managed[999], 2);
    ASSERT_TRUE(comm.all_reduce(managed, out.data(), 1000, DType::kFloat32, RedOp::kSum).ok());
    ASSERT_TRUE(
        comm.on(work.get()).all_reduce(managed, managed, 1000, DType::kFloat32, RedOp::kSum).ok());
    work.wait();
    EXPECT_EQ(managed[0], 4);
    float got = 0;
    std::memcpy(&got, out.get().data() + 3996, 4);
    EXPECT_EQ(got, 4);
    ASSERT_TRUE(comm.barrier().ok());
    fake.free(managed);
  });
}

TEST_F(DeviceCollectives, MixedKindsAreRefusedByName) {
  run_ranks(places({2}), patient(), [](World& world) {
    TestStream work(*device(), 1), elsewhere(*device(), 2);
    DeviceBuffer in(work, 400), out(elsewhere, 400);
    std::vector<float> host(100);
    Communicator comm = world.world();
    const Status s = comm.all_reduce(in.data(), host.data(), 100, DType::kFloat32, RedOp::kSum);
    EXPECT_EQ(s.code(), Code::kInvalidArgument);
    EXPECT_NE(s.message().find("in is device memory (GPU 1), out is host memory"),
              std::string::npos)
        << s.message();
    const Status two = comm.all_reduce(in.data(), out.data(), 100, DType::kFloat32, RedOp::kSum);
    EXPECT_EQ(two.code(), Code::kInvalidArgument);
    EXPECT_NE(two.message().find("GPU 1, out of GPU 2"), std::string::npos) << two.message();
    const std::vector<std::size_t> counts(2, 10);
    const Status is_vector = comm.all_gather_v(in.data(), host.data(), counts, DType::kFloat32);
    EXPECT_EQ(is_vector.code(), Code::kInvalidArgument);
    EXPECT_NE(is_vector.message().find("in is device memory (GPU 1), out is host memory"),
              std::string::npos)
        << is_vector.message();
    EXPECT_TRUE(comm.barrier().ok());
  });
}

void fill(DeviceBuffer& buffer, const std::vector<float>& values) {
  std::vector<std::byte> bytes(values.size() * 4);
  if (!bytes.empty()) std::memcpy(bytes.data(), values.data(), bytes.size());
  buffer.put(bytes);
}
std::vector<float> floats(const DeviceBuffer& buffer) {
  const std::vector<std::byte> bytes = buffer.get();
  std::vector<float> values(bytes.size() / 4);
  if (!bytes.empty()) std::memcpy(values.data(), bytes.data(), bytes.size());
  return values;
}

// Host memory between hosts is pinned: GPU copies of pageable memory block the host.
TEST_F(DeviceCollectives, HostMemoryOnTheWayIsPinned) {
  run_ranks(places({1, 1}), patient(), [](World& world) {
    FakeDevice& fake = *fake_device();
    TestStream work(fake, world.rank());
    constexpr std::size_t kCount = 300'000;
    const Rank other = 1 - world.rank();
    DeviceBuffer a(work, kCount * 4), b(work, 2 * kCount * 4);
    for (const bool ordered : {false, true}) {
      Communicator comm = ordered ? world.world().on(work.get()) : world.world();
      fill(a, std::vector<float>(kCount, static_cast<float>(world.rank() + 1)));
      ASSERT_TRUE(world.world().barrier().ok());  // the ranks are threads and share the counters
      const std::size_t before = fake.pageable_copies();
      ASSERT_TRUE(world.world().barrier().ok());
      const Message both[] = {Message::to(other, a.data(), kCount, DType::kFloat32),
                              Message::from(other, b.data(), kCount, DType::kFloat32)};
      ASSERT_TRUE(comm.exchange(both).ok());
      if (world.rank() == 0) {
        ASSERT_TRUE(comm.send(a.data(), kCount, DType::kFloat32, 1).ok());
      } else {
        ASSERT_TRUE(comm.recv(b.data(), kCount, DType::kFloat32, 0).ok());
      }
      const std::vector<std::size_t> counts = {kCount, kCount - 1};
      const std::size_t own = counts[static_cast<std::size_t>(world.rank())];
      ASSERT_TRUE(comm.all_gather_v(a.data(), b.data(), counts, DType::kFloat32).ok());
      ASSERT_TRUE(
          comm.reduce_scatter_v(b.data(), a.data(), counts, DType::kFloat32, RedOp::kSum).ok());
      ASSERT_TRUE(
          comm.all_reduce(a.data(), a.data(), kCount - 1, DType::kFloat32, RedOp::kSum).ok());
      work.wait();
      ASSERT_TRUE(world.world().barrier().ok());
      EXPECT_EQ(fake.pageable_copies(), before) << ordered;
      ASSERT_TRUE(world.world().barrier().ok());
      EXPECT_EQ(floats(a)[own / 2], 2 + 4);
    }
  });
}

TEST_F(DeviceCollectives, DifferentArgumentsShowBothSides) {
  run_ranks(places({3}), patient(), [&](World& world) {
    TestStream work(*device());
    DeviceBuffer data(work, 8192);
    Communicator comm = world.world();
    ASSERT_TRUE(comm.barrier().ok());
    const std::size_t count = world.rank() == 1 ? 2048 : 1024;
    const Status s = comm.all_reduce(data.data(), data.data(), count, DType::kFloat32, RedOp::kSum);
    EXPECT_EQ(s.code(), Code::kMismatch);
    EXPECT_EQ(s.rank(), 1);
    EXPECT_EQ(s.message(),
              "all_reduce #2: rank 0 passed 1024 x float32, rank 1 passed 2048 x float32");
  });
}

TEST_F(DeviceCollectives, AFailureOfTheGpuReachesAllRanks) {
  run_ranks(places({3}), patient(), [&](World& world) {
    TestStream work(*device());
    DeviceBuffer data(work, 4000);
    Communicator comm = world.world();
    ASSERT_TRUE(comm.all_reduce(data.data(), data.data(), 1000, DType::kFloat32, RedOp::kSum).ok());
    if (world.rank() == 1) fake_device()->fail_next("launch");
    ASSERT_TRUE(job_of(world).all_gather("").size() == 3);
    const Status s = comm.all_reduce(data.data(), data.data(), 1000, DType::kFloat32, RedOp::kSum);
    EXPECT_FALSE(s.ok());
    EXPECT_NE(s.message().find("launch on fake GPU"), std::string::npos) << s.to_string();
  });
}

// Regression: it ended the process.
TEST_F(DeviceCollectives, MemoryThatIsUsedUpIsAFailureOfTheCall) {
  run_ranks(places({3}), patient(), [&](World& world) {
    TestStream work(*device());
    DeviceBuffer data(work, 4000);
    Communicator comm = world.world();
    if (world.rank() == 1) fake_device()->fail_next("launch", 0, true);
    ASSERT_TRUE(job_of(world).all_gather("").size() == 3);
    const Status s = comm.all_reduce(data.data(), data.data(), 1000, DType::kFloat32, RedOp::kSum);
    EXPECT_NE(s.message().find("bad_alloc"), std::string::npos) << s.to_string();
  });
}

}  // namespace
}  // namespace weft
