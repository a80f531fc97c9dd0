// labels: multiproc
// ctest: whole
// Every collective, type and operator on device memory: direct between ranks, staged through host
// memory, between hosts, with and without a stream. On the fake device.
#include <gtest/gtest.h>

#include "support/device_ranks.h"
#include "support/ranks.h"
#include "transport/device_fake.h"
#include "transport/ucx.h"

namespace weft {
namespace {

using testing::DeviceBuffer;
using testing::DeviceCase;
using testing::places;
using testing::run_device_case;
using testing::run_ranks;
using testing::TestStream;

// All_to_all first: in place it is always staged.
constexpr Collective kData[] = {Collective::kAllToAll,  Collective::kAllReduce,
                                Collective::kAllGather, Collective::kReduceScatter,
                                Collective::kReduce,    Collective::kGather,
                                Collective::kScatter,   Collective::kBroadcast};

class DeviceCollectives : public ::testing::Test {
 protected:
  void SetUp() override { fake_ = &use_fake_device(); }
  void TearDown() override { fake_->separate(false); }
  FakeDevice* fake_ = nullptr;
};

WorldOptions patient() {
  WorldOptions options;
  options.timeout = std::chrono::milliseconds(60000);
  return options;
}

// Ranks share GPUs where there are more ranks than GPUs.
void all_cases(World& world, const std::vector<std::size_t>& counts) {
  TestStream work(*device(), world.rank() % FakeDevice::kGpus);
  Communicator comm = world.world();
  for (const Collective collective : kData)
    for (const std::size_t count : counts)
      for (const DType type : kAllDTypes)
        for (const RedOp op : kAllRedOps) {
          const bool reducing = reduces(collective);
          if (!reducing && op != RedOp::kSum) continue;
          if (!defined(op, type)) continue;
          if (op == RedOp::kAvg && is_floating(type) && (comm.size() & (comm.size() - 1))) continue;
          const bool odd = (count + static_cast<std::size_t>(type)) % 2;
          DeviceCase c{collective, count, type, op, odd, odd ? size_of(type) : 0,
                       static_cast<Rank>(count) % comm.size(), static_cast<int>(op) % 2 == 0};
          run_device_case(comm, work, c);
          c.in_place = !odd;
          run_device_case(comm, work, c);
          if (::testing::Test::HasFatalFailure()) return;
        }
}

TEST_F(DeviceCollectives, DirectBetweenRanksOfAHost) {
  for (const int n : {1, 2, 3, 8})
    run_ranks(places({n}), patient(), [n](World& world) {
      all_cases(world, n == 2 ? std::vector<std::size_t>{1, 33, 1000} : std::vector<std::size_t>{33});
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
  if (!ucx_available()) GTEST_SKIP() << "missing capability: UCX";
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
        for (const Collective collective : kData)
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

TEST_F(DeviceCollectives, ManyOperationsOfOneStreamKeepTheirOrder) {
  run_ranks(places({3}), patient(), [](World& world) {
    FakeDevice& fake = *fake_device();
    TestStream work(fake, world.rank());
    Communicator comm = world.world().on(work.get());
    constexpr std::size_t kCount = 100;
    DeviceBuffer data(work, kCount * 8);
    std::vector<std::byte> ones(kCount * 8);
    for (std::size_t i = 0; i < kCount; ++i) testing::put(ones.data(), i, DType::kInt64, 1);
    data.put(ones);
    constexpr int kTimes = 12;
    for (int k = 0; k < kTimes; ++k)
      ASSERT_TRUE(
          comm.all_reduce(data.data(), data.data(), kCount, DType::kInt64, RedOp::kSum).ok());
    std::int64_t want = 1;
    for (int k = 0; k < kTimes; ++k) want *= comm.size();
    const auto got = data.get();
    for (std::size_t i = 0; i < kCount; ++i) {
      std::int64_t v = 0;
      std::memcpy(&v, got.data() + i * 8, 8);
      ASSERT_EQ(v, want);
    }
  });
}

TEST_F(DeviceCollectives, TheHostDoesNotWaitForTheStream) {
  run_ranks(places({2}), patient(), [](World& world) {
    FakeDevice& fake = *fake_device();
    TestStream work(fake);
    DeviceBuffer data(work, 4000);
    std::atomic<std::uint32_t>* words = fake.words(2);
    fake.wait_word(work.get(), &words[0], 1);  // the stream stands still
    Communicator comm = world.world().on(work.get());
    ASSERT_TRUE(
        comm.all_reduce(data.data(), data.data(), 1000, DType::kFloat32, RedOp::kSum).ok());
    Handle handle = comm.all_reduce_async(data.data(), data.data(), 1000, DType::kFloat32,
                                          RedOp::kSum);
    fake.write_word(work.get(), &words[1], 1);
    EXPECT_FALSE(handle.test());
    EXPECT_EQ(words[1].load(), 0u);
    words[0].store(1);
    EXPECT_TRUE(handle.wait().ok());
    work.wait();
    EXPECT_EQ(words[1].load(), 1u);
    fake.free_words(words);
  });
}

// An operation is over for the host before its stream has passed: what the stream still writes to
// outlives the communicator.
TEST_F(DeviceCollectives, ACommunicatorEndsAfterTheStreamsOfItsOperations) {
  run_ranks(places({2}), patient(), [](World& world) {
    TestStream work(*fake_device());
    DeviceBuffer data(work, 4000);
    for (int k = 0; k < 20; ++k) {
      Communicator comm = world.world().duplicate();
      Handle handle = comm.on(work.get()).all_reduce_async(data.data(), data.data(), 1000,
                                                           DType::kFloat32, RedOp::kSum);
      ASSERT_TRUE(handle.wait().ok());
    }
    work.wait();
  });
  EXPECT_EQ(fake_->late_writes(), 0u);
}

TEST_F(DeviceCollectives, HostMemoryInTheOrderOfAStream) {
  run_ranks(places({2}), patient(), [](World& world) {
    FakeDevice& fake = *fake_device();
    TestStream work(fake);
    std::vector<float> data(1000, -1), result(1000, -1);
    const float mine = static_cast<float>(world.rank() + 1);
    fake.put(work.get(), [&] { std::fill(data.begin(), data.end(), mine); });
    Communicator comm = world.world().on(work.get());
    ASSERT_TRUE(
        comm.all_reduce(data.data(), result.data(), 1000, DType::kFloat32, RedOp::kSum).ok());
    ASSERT_TRUE(comm.barrier().ok());
    work.wait();
    EXPECT_EQ(result, std::vector<float>(1000, 3));
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
    ASSERT_TRUE(comm.on(work.get())
                    .all_reduce(managed, managed, 1000, DType::kFloat32, RedOp::kSum)
                    .ok());
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
    const Status sent =
        comm.on(work.get()).send(in.data(), 100, DType::kFloat32, 1 - world.rank());
    EXPECT_EQ(sent.code(), Code::kInvalidArgument);
    EXPECT_NE(sent.message().find("without on()"), std::string::npos) << sent.message();
    const std::vector<std::size_t> counts(2, 10);
    const Status uneven = comm.all_gather_v(in.data(), host.data(), counts, DType::kFloat32);
    EXPECT_EQ(uneven.code(), Code::kInvalidArgument);
    EXPECT_NE(uneven.message().find("in is device memory (GPU 1), out is host memory"),
              std::string::npos)
        << uneven.message();
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
    if (hosts.size() > 1 && !ucx_available()) continue;
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
            Handle received = comm.recv_async(to_device ? static_cast<void*>(out.data()) : got.data(),
                                              count, DType::kFloat32, last);
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

// Every uneven form on device memory, with gaps between the blocks that must stay as they are.
TEST_F(DeviceCollectives, BlocksOfDifferentSizes) {
  run_ranks(places({3}), patient(), [](World& world) {
    Communicator comm = world.world();
    TestStream work(*device(), world.rank() % FakeDevice::kGpus);
    const Rank me = comm.rank();
    const int n = comm.size();
    for (const std::size_t scale : {std::size_t{1}, std::size_t{50000}}) {
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
      ASSERT_TRUE(comm.gather_v(small.data(), me == 1 ? large.data() : nullptr, blocks,
                                DType::kFloat32, 1)
                      .ok());
      EXPECT_EQ(floats(large), me == 1 ? want : all) << "gather_v";

      fill(small, std::vector<float>(own, -1));
      fill(large, want);
      ASSERT_TRUE(comm.scatter_v(me == 2 ? large.data() : nullptr, small.data(), blocks,
                                 DType::kFloat32, 2)
                      .ok());
      EXPECT_EQ(floats(small), mine) << "scatter_v";

      ASSERT_TRUE(comm.reduce_scatter_v(large.data(), small.data(), blocks, DType::kFloat32,
                                        RedOp::kSum)
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

TEST_F(DeviceCollectives, DifferentArgumentsShowBothSides) {
  std::atomic<int> told{0};
  run_ranks(places({2}), patient(), [&](World& world) {
    TestStream work(*device());
    DeviceBuffer data(work, 8192);
    const std::size_t count = world.rank() == 0 ? 1024 : 2048;
    const Status s =
        world.world().all_reduce(data.data(), data.data(), count, DType::kFloat32, RedOp::kSum);
    EXPECT_FALSE(s.ok());
    told += s.message().find("1024 x float") != std::string::npos &&
            s.message().find("2048 x float") != std::string::npos;
  });
  EXPECT_GE(told, 1);
}

TEST_F(DeviceCollectives, AFailureOfTheGpuReachesAllRanks) {
  run_ranks(places({3}), patient(), [&](World& world) {
    TestStream work(*device());
    DeviceBuffer data(work, 4000);
    Communicator comm = world.world();
    ASSERT_TRUE(
        comm.all_reduce(data.data(), data.data(), 1000, DType::kFloat32, RedOp::kSum).ok());
    if (world.rank() == 1) fake_device()->fail_next("launch");
    ASSERT_TRUE(world.job().all_gather("").size() == 3);
    const Status s =
        comm.all_reduce(data.data(), data.data(), 1000, DType::kFloat32, RedOp::kSum);
    EXPECT_FALSE(s.ok());
    EXPECT_NE(s.message().find("launch on fake GPU"), std::string::npos) << s.to_string();
  });
}

TEST_F(DeviceCollectives, GraphsReplay) {
  run_ranks(places({3}), patient(), [](World& world) {
    FakeDevice& fake = *fake_device();
    TestStream work(fake, world.rank());
    constexpr std::size_t kCount = 50;
    DeviceBuffer data(work, kCount * 8), sum(work, kCount * 8);
    Communicator comm = world.world().on(work.get());
    std::vector<std::int64_t> mine(kCount, world.rank() + 1), got(kCount);
    fake.begin_capture(work.get());
    fake.copy(data.data(), mine.data(), kCount * 8, work.gpu(), work.get());
    ASSERT_TRUE(
        comm.all_reduce(data.data(), sum.data(), kCount, DType::kInt64, RedOp::kSum).ok());
    ASSERT_TRUE(
        comm.all_reduce(sum.data(), sum.data(), kCount, DType::kInt64, RedOp::kMax).ok());
    fake.copy(got.data(), sum.data(), kCount * 8, work.gpu(), work.get());
    EXPECT_EQ(comm.all_reduce_async(data.data(), sum.data(), kCount, DType::kInt64, RedOp::kSum)
                  .wait()
                  .code(),
              Code::kInvalidArgument);
    const FakeDevice::Graph graph = fake.end_capture(work.get());
    for (int replay = 1; replay <= 5; ++replay) {
      std::fill(mine.begin(), mine.end(), replay * (world.rank() + 1));
      fake.launch_graph(graph, work.get());
      // Calls and replays of one stream keep their order too.
      ASSERT_TRUE(
          comm.all_reduce(sum.data(), sum.data(), kCount, DType::kInt64, RedOp::kSum).ok());
      work.wait();
      EXPECT_EQ(got, std::vector<std::int64_t>(kCount, replay * 6));
      std::int64_t tripled = 0;
      std::memcpy(&tripled, sum.get().data(), 8);
      EXPECT_EQ(tripled, replay * 18);
    }
  });
}

TEST_F(DeviceCollectives, SeveralCommunicatorsAtOnce) {
  run_ranks(places({2, 2}, 1), {.transport = "shm"}, [](World& world) {
    TestStream one(*device()), two(*device());
    DeviceBuffer a(one, 8000), b(two, 8000);
    std::vector<std::byte> ones(8000);
    for (std::size_t i = 0; i < 1000; ++i) testing::put(ones.data(), i, DType::kInt64, 1);
    a.put(ones);
    b.put(ones);
    Communicator all = world.world(), host = world.host();
    // In another order on each rank: what the streams order is for each communicator alone.
    for (int k = 0; k < 4; ++k) {
      const bool first = (world.rank() + k) % 2 == 0;
      for (const bool turn : {first, !first}) {
        DeviceBuffer& d = turn ? a : b;
        Communicator c = turn ? all.on(one.get()) : host.on(two.get());
        ASSERT_TRUE(c.all_reduce(d.data(), d.data(), 1000, DType::kInt64, RedOp::kSum).ok());
      }
    }
    std::int64_t x = 0, y = 0;
    std::memcpy(&x, a.get().data(), 8);
    std::memcpy(&y, b.get().data(), 8);
    EXPECT_EQ(x, 256);
    EXPECT_EQ(y, 16);
  });
}

}  // namespace
}  // namespace weft
