// labels: multiproc
// ctest: whole
// sanitize: long
// Every collective, type and operator on device memory: direct between ranks, staged through host
// memory, between hosts. On the fake device; the order of streams is in device_stream_test.cc.
#include <gtest/gtest.h>

#include "coll/api/metrics.h"
#include "coll/runtime/internals.h"
#include "support/device/device_ranks.h"
#include "support/fakes/fake_device.h"
#include "support/jobs/faults.h"
#include "support/jobs/ranks.h"

namespace weft {
namespace {

using testing::DeviceBuffer;
using testing::DeviceCase;
using testing::patient;
using testing::places;
using testing::run_device_case;
using testing::run_ranks;
using testing::TestStream;

// All_to_all first: in place it is always staged.
constexpr Collective kMoved[] = {Collective::kAllToAll,  Collective::kAllReduce,
                                 Collective::kAllGather, Collective::kReduceScatter,
                                 Collective::kReduce,    Collective::kGather,
                                 Collective::kScatter,   Collective::kBroadcast};

class DeviceCollectives : public testing::OnFakeDevice {};

// Ranks share GPUs where there are more ranks than GPUs.
void all_cases(World& world, const std::vector<std::size_t>& counts) {
  TestStream work(*device(), world.rank() % FakeDevice::kGpus);
  Communicator comm = world.world();
  for (const Collective collective : kMoved)
    for (const std::size_t count : counts)
      for (const DType type : kAllDTypes)
        for (const RedOp op : kAllRedOps) {
          const bool reducing = reduces(collective);
          if (!reducing && op != RedOp::kSum) continue;
          if (!defined(op, type)) continue;
          if (op == RedOp::kAvg && is_floating(type) && (comm.size() & (comm.size() - 1))) continue;
          const bool odd = (count + static_cast<std::size_t>(type)) % 2;
          DeviceCase c{collective,
                       count,
                       type,
                       op,
                       odd,
                       odd ? size_of(type) : 0,
                       static_cast<Rank>(count) % comm.size(),
                       static_cast<int>(op) % 2 == 0};
          run_device_case(comm, work, c);
          c.in_place = !odd;
          run_device_case(comm, work, c);
          if (::testing::Test::HasFatalFailure()) return;
        }
}

TEST_F(DeviceCollectives, DirectBetweenRanksOfAHost) {
  for (const int n : {1, 2, 3, 8})
    run_ranks(places({n}), patient(), [n](World& world) {
      all_cases(world,
                n == 2 ? std::vector<std::size_t>{1, 33, 1000} : std::vector<std::size_t>{33});
      if (world.size() > 1) {
        EXPECT_EQ(world.world().last_algorithm(), "device");
      }
    });
}

TEST_F(DeviceCollectives, StagedWhereGpusDoNotReachEachOther) {
  fake_->separate(true);
  for (const int n : {2, 3})
    run_ranks(places({n}), patient(), [](World& world) {
      all_cases(world, {1, 100});
      EXPECT_EQ(world.world().last_algorithm(), "staged");
    });
}

TEST_F(DeviceCollectives, StagedBetweenHosts) {
  run_ranks(places({2, 2}, 2), patient(), [](World& world) {
    all_cases(world, {1, 100});
    EXPECT_EQ(world.world().last_algorithm(), "staged");
  });
}

TEST_F(DeviceCollectives, LongMessages) {
  for (const bool separate : {false, true}) {
    fake_->separate(separate);
    for (const int n : {2, 4})
      run_ranks(places({n}), patient(), [](World& world) {
        TestStream work(*device(), world.rank() % FakeDevice::kGpus);
        for (const Collective collective : kMoved)
          for (const bool in_place : {false, true}) {
            run_device_case(world.world(), work,
                            {collective, (5u << 20) / 4 + 13, DType::kFloat32, RedOp::kSum,
                             in_place, 0, 1, in_place});
            if (::testing::Test::HasFatalFailure()) return;
          }
      });
  }
}

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

// Element i of what rank `from` has for rank `to`.
float element(Rank from, Rank to, std::size_t i) {
  return static_cast<float>(from * 1000 + to * 100) + static_cast<float>(i % 97);
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

// From device to device, device to host, host to device; also to itself.
TEST_F(DeviceCollectives, Messages) {
  for (const std::vector<int>& hosts : {std::vector<int>{3}, std::vector<int>{1, 1}}) {
    run_ranks(places(hosts), patient(), [](World& world) {
      Communicator comm = world.world();
      TestStream work(*device(), world.rank() % FakeDevice::kGpus);
      const Rank next = (comm.rank() + 1) % comm.size();
      const Rank last = (comm.rank() + comm.size() - 1) % comm.size();
      for (const std::size_t count : {std::size_t{0}, std::size_t{1}, std::size_t{300001}})
        for (const bool from_device : {false, true})
          for (const bool to_device : {false, true}) {
            std::vector<float> mine(count), got(count, -1);
            for (std::size_t i = 0; i < count; ++i) mine[i] = element(comm.rank(), next, i);
            DeviceBuffer in(work, count * 4, 4), out(work, count * 4, 8);
            fill(in, mine);
            Request received =
                comm.recv_async(to_device ? static_cast<void*>(out.data()) : got.data(), count,
                                DType::kFloat32, last);
            ASSERT_TRUE(comm.send(from_device ? static_cast<const void*>(in.data()) : mine.data(),
                                  count, DType::kFloat32, next)
                            .ok());
            ASSERT_TRUE(received.wait().ok());
            if (to_device) got = floats(out);
            for (std::size_t i = 0; i < count; ++i)
              ASSERT_EQ(got[i], element(last, comm.rank(), i)) << i << " of " << count;
            EXPECT_TRUE(in.intact_around() && out.intact_around());
          }
      DeviceBuffer in(work, 400), out(work, 400);
      fill(in, std::vector<float>(100, 7));
      const Message own[] = {Message::to(comm.rank(), in.data(), 100, DType::kFloat32),
                             Message::from(comm.rank(), out.data(), 100, DType::kFloat32)};
      ASSERT_TRUE(comm.exchange(own).ok());
      EXPECT_EQ(floats(out), std::vector<float>(100, 7));
    });
  }
}

// Every vector form on device memory, with gaps between the blocks that must stay as they are. The
// long blocks take three to six slices on a stream, and the short ones fewer.
TEST_F(DeviceCollectives, BlocksOfDifferentSizes) {
  run_ranks(places({3}), patient(), [](World& world) {
    TestStream work(*device(), world.rank() % FakeDevice::kGpus);
    const Rank me = world.rank();
    const int n = world.size();
    for (const auto& [scale, ordered] :
         {std::pair{1ul, false}, {1ul, true}, {250000ul, false}, {250000ul, true}}) {
      Communicator comm = ordered ? world.world().on(work.get()) : world.world();
      // Rank r has scale * r elements (0 has none); one element is left free behind each.
      std::vector<std::size_t> counts, offsets;
      std::size_t end = 0;
      for (int r = 0; r < n; ++r) {
        counts.push_back(scale * static_cast<std::size_t>(r));
        offsets.push_back(end);
        end += counts.back() + 1;
      }
      const Blocks blocks(counts, offsets);
      const std::size_t own = counts[static_cast<std::size_t>(me)];
      std::vector<float> mine(own), all(end, -1), want(end, -1);
      for (std::size_t i = 0; i < own; ++i) mine[i] = element(me, 0, i);
      DeviceBuffer small(work, own * 4), large(work, end * 4);
      fill(small, mine);
      fill(large, all);
      ASSERT_TRUE(comm.all_gather_v(small.data(), large.data(), blocks, DType::kFloat32).ok());
      for (Rank r = 0; r < n; ++r)
        for (std::size_t i = 0; i < counts[static_cast<std::size_t>(r)]; ++i)
          want[offsets[static_cast<std::size_t>(r)] + i] = element(r, 0, i);
      EXPECT_EQ(floats(large), want) << "all_gather_v";

      fill(large, all);
      ASSERT_TRUE(
          comm.gather_v(small.data(), me == 1 ? large.data() : nullptr, blocks, DType::kFloat32, 1)
              .ok());
      EXPECT_EQ(floats(large), me == 1 ? want : all) << "gather_v";

      fill(small, std::vector<float>(own, -1));
      fill(large, want);
      ASSERT_TRUE(
          comm.scatter_v(me == 2 ? large.data() : nullptr, small.data(), blocks, DType::kFloat32, 2)
              .ok());
      EXPECT_EQ(floats(small), mine) << "scatter_v";

      ASSERT_TRUE(
          comm.reduce_scatter_v(large.data(), small.data(), blocks, DType::kFloat32, RedOp::kSum)
              .ok());
      for (float& v : mine) v *= static_cast<float>(n);
      EXPECT_EQ(floats(small), mine) << "reduce_scatter_v";
      // In place: the result takes the place of this rank's block.
      float* const in = reinterpret_cast<float*>(large.data());
      ASSERT_TRUE(comm.reduce_scatter_v(in, in + offsets[static_cast<std::size_t>(me)], blocks,
                                        DType::kFloat32, RedOp::kSum)
                      .ok());
      const std::vector<float> after = floats(large);
      for (std::size_t i = 0; i < own; ++i)
        ASSERT_EQ(after[offsets[static_cast<std::size_t>(me)] + i], mine[i]);

      // From r to s: scale * (r + s) elements.
      std::vector<std::size_t> to, from;
      for (int r = 0; r < n; ++r) {
        to.push_back(scale * static_cast<std::size_t>(me + r));
        from.push_back(to.back());
      }
      std::vector<float> sent, received;
      for (Rank r = 0; r < n; ++r)
        for (std::size_t i = 0; i < to[static_cast<std::size_t>(r)]; ++i) {
          sent.push_back(element(me, r, i));
          received.push_back(element(r, me, i));
        }
      DeviceBuffer a(work, sent.size() * 4), b(work, received.size() * 4);
      fill(a, sent);
      ASSERT_TRUE(comm.all_to_all_v(a.data(), to, b.data(), from, DType::kFloat32).ok());
      EXPECT_EQ(floats(b), received) << "all_to_all_v";
      EXPECT_TRUE(small.intact_around() && large.intact_around() && b.intact_around());
    }
  });
}

// On the way between hosts: a GPU copies to and from pageable memory only while the host waits.
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
      ASSERT_TRUE(world.world().barrier().ok());  // the ranks are threads, and count together
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

// Ranks that read each other's memory send nothing that could be checked: everything is staged,
// and what arrives changed is sent again.
TEST_F(DeviceCollectives, IntegrityIsNotLeftOut) {
  WorldOptions options = patient();
  options.integrity = true;
  const testing::Faults faults("flip:nth=3,every=23,repeats=0,min=64");
  std::atomic<std::uint64_t> retries{0};
  run_ranks(places({2}), options, [&](World& world) {
    all_cases(world, {33, 1000});
    TestStream work(*device());
    for (int i = 0; i < 3; ++i)
      run_device_case(world.world(), work, {Collective::kAllReduce, 300007});
    EXPECT_EQ(world.world().last_algorithm(), "staged");
    retries += world.metrics().retries;
  });
  EXPECT_GT(retries.load(), 0u);
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

// It ended the process.
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
