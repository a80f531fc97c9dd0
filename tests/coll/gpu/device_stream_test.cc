// labels: multiproc
// ctest: whole
// Collectives in stream order, concurrent ones, and graph capture, on the fake device.
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <cstring>
#include <memory>
#include <thread>
#include <vector>

#include "coll/runtime/internals.h"
#include "support/device/device_ranks.h"
#include "support/fakes/fake_device.h"
#include "support/jobs/ranks.h"
#include "support/process/signals.h"
#include "transport/gpu/pinned.h"

namespace weft {
namespace {

using testing::DeviceBuffer;
using testing::patient;
using testing::places;
using testing::run_ranks;
using testing::TestStream;
using testing::threads_with_signals;

class DeviceStreams : public testing::OnFakeDevice {};

// Loading a kernel may synchronize all streams of a GPU, including one that waits for that kernel.
// This must be the first test in this file that uses this GPU.
TEST_F(DeviceStreams, KernelsAreLoadedBeforeAStreamWaits) {
  const std::size_t before = fake_device()->late_loads();
  run_ranks(places({2}), patient(), [](World& world) {
    TestStream work(*fake_device(), FakeDevice::kGpus - 1);
    Communicator comm = world.world().on(work.get());
    DeviceBuffer data(work, 4096);
    ASSERT_TRUE(comm.all_reduce(data.data(), data.data(), 1024, DType::kInt32, RedOp::kSum).ok());
    work.wait();
    EXPECT_EQ(comm.last_algorithm(), "device");
  });
  EXPECT_EQ(fake_device()->late_loads(), before);
}

TEST_F(DeviceStreams, ManyOperationsOfOneStreamKeepTheirOrder) {
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

// Everything is queued on a blocked stream, with inputs and results.
TEST_F(DeviceStreams, BlocksOfDifferentSizes) {
  run_ranks(places({3}), patient(), [](World& world) {
    FakeDevice& fake = *fake_device();
    TestStream work(fake, world.rank());
    Communicator comm = world.world().on(work.get());
    const std::vector<std::size_t> counts = {5, 0, 700};
    const std::size_t own = counts[static_cast<std::size_t>(world.rank())];
    DeviceBuffer small(work, own * 8), large(work, 705 * 8);
    std::vector<std::int64_t> mine(own), got(own);
    const auto put_on_stream = [&] {
      fake.copy(small.data(), mine.data(), own * 8, work.gpu(), work.get());
      ASSERT_TRUE(comm.all_gather_v(small.data(), large.data(), counts, DType::kInt64).ok());
      ASSERT_TRUE(
          comm.reduce_scatter_v(large.data(), small.data(), counts, DType::kInt64, RedOp::kSum)
              .ok());
      fake.copy(got.data(), small.data(), own * 8, work.gpu(), work.get());
    };
    std::atomic<std::uint32_t>* word = fake.words(1);
    fake.hold(work.get(), word);
    put_on_stream();
    std::fill(mine.begin(), mine.end(), 11);
    word->store(1);
    work.wait();
    EXPECT_EQ(got, std::vector<std::int64_t>(own, 33));
    fake.free_words(word);

    fake.begin_capture(work.get());
    put_on_stream();
    const FakeDevice::Graph graph = fake.end_capture(work.get());
    for (int replay = 1; replay <= 3; ++replay) {
      std::fill(mine.begin(), mine.end(), replay);
      fake.launch_graph(graph, work.get());
      work.wait();
      EXPECT_EQ(got, std::vector<std::int64_t>(own, 3 * replay));
    }
  });
}

// The program's signal handlers (timers, Ctrl-C) must run in its own threads.
TEST_F(DeviceStreams, SignalsDoNotReachTheThreadsOfTheLibrary) {
  const int before = threads_with_signals();
  run_ranks(places({2}), patient(), [&](World& world) {
    TestStream work(*fake_device(), world.rank());
    Communicator comm = world.world().on(work.get());
    DeviceBuffer data(work, 4);
    const Rank peer = 1 - comm.rank();
    ASSERT_TRUE(comm.all_reduce(data.data(), data.data(), 1, DType::kInt32, RedOp::kSum).ok());
    ASSERT_TRUE(comm.rank() == 0 ? comm.send(data.data(), 1, DType::kInt32, peer).ok()
                                 : comm.recv(data.data(), 1, DType::kInt32, peer).ok());
    work.wait();
    ASSERT_TRUE(world.world().barrier().ok());
    EXPECT_EQ(threads_with_signals(), before + 2) << "and the two ranks, which are threads here";
    ASSERT_TRUE(world.world().barrier().ok());
  });
}

TEST_F(DeviceStreams, OneRankMultipliesToo) {
  run_ranks(places({1}), patient(), [](World& world) {
    TestStream work(*device());
    DeviceBuffer data(work, 4);
    std::vector<std::byte> bytes(4);
    testing::put(bytes.data(), 0, DType::kFloat32, 3);
    data.put(bytes);
    ASSERT_TRUE(world.world()
                    .on(work.get())
                    .all_reduce(data.data(), data.data(), 1, DType::kFloat32,
                                Reduction{RedOp::kPreMulSum, 0.5})
                    .ok());
    testing::put(bytes.data(), 0, DType::kFloat32, 1.5);
    EXPECT_EQ(data.get(), bytes);
  });
}

TEST_F(DeviceStreams, TheHostDoesNotWaitForTheStream) {
  run_ranks(places({2}), patient(), [](World& world) {
    FakeDevice& fake = *fake_device();
    TestStream work(fake);
    DeviceBuffer data(work, 4000);
    std::atomic<std::uint32_t>* words = fake.words(2);
    fake.hold(work.get(), &words[0]);  // blocks the stream
    Communicator comm = world.world().on(work.get());
    ASSERT_TRUE(comm.all_reduce(data.data(), data.data(), 1000, DType::kFloat32, RedOp::kSum).ok());
    Request handle =
        comm.all_reduce_async(data.data(), data.data(), 1000, DType::kFloat32, RedOp::kSum);
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

// The device refuses the last write of a fence: the stream that waits for it continues.
TEST_F(DeviceStreams, ACallThatTheDeviceRefusesDoesNotHoldItsStream) {
  run_ranks(places({1, 1}), patient(), [](World& world) {
    if (world.rank() != 0) return;
    TestStream work(*fake_device());
    DeviceBuffer data(work, 4000);
    const int before = fake_device()->streams_waiting(0);
    fake_device()->fail_next("write_word", 1);
    const Status s = world.world()
                         .on(work.get())
                         .all_reduce(data.data(), data.data(), 1000, DType::kFloat32, RedOp::kSum);
    EXPECT_NE(s.message().find("write_word"), std::string::npos) << s.to_string();
    work.wait();
    EXPECT_EQ(fake_device()->streams_waiting(0), before);
  });
}

// Agreed values must be complete before a rank reads them: no stream orders the calls of a split().
TEST_F(DeviceStreams, ACommunicatorOnAStreamIsSplit) {
  run_ranks(places({2}), patient(), [](World& world) {
    FakeDevice& fake = *fake_device();
    TestStream work(fake);
    std::atomic<std::uint32_t>* words = fake.words(1);
    fake.hold(work.get(), &words[0]);  // blocks the stream
    Communicator half = world.world().on(work.get()).split(0, -world.rank());
    EXPECT_EQ(half.size(), 2);
    EXPECT_EQ(half.rank(), 1 - world.rank());
    words[0].store(1);
    work.wait();
    fake.free_words(words);
  });
}

// An operation completes on the host before its stream passes it: memory that the stream still
// writes outlives the communicator.
TEST_F(DeviceStreams, ACommunicatorEndsAfterTheStreamsOfItsOperations) {
  run_ranks(places({2}), patient(), [](World& world) {
    TestStream work(*fake_device());
    DeviceBuffer data(work, 4000);
    for (int k = 0; k < 20; ++k) {
      Communicator comm = world.world().duplicate();
      Request handle =
          comm.on(work.get())
              .all_reduce_async(data.data(), data.data(), 1000, DType::kFloat32, RedOp::kSum);
      ASSERT_TRUE(handle.wait().ok());
    }
    work.wait();
  });
  EXPECT_EQ(fake_->late_writes(), 0u);
}

// CUDA has 8 queues for all streams of a process. A stream that waits for weft must not share a
// queue with one of weft's streams, so weft uses few, whatever the number of communicators.
TEST_F(DeviceStreams, CommunicatorsShareTwoStreams) {
  const std::size_t before = fake_->streams();
  run_ranks(places({2}), patient(), [&](World& world) {
    TestStream work(*fake_device());
    DeviceBuffer data(work, 4000), other(work, 4000);
    std::vector<Communicator> comms;
    for (int k = 0; k < 5; ++k) {
      comms.push_back(world.world().duplicate());
      Communicator comm = comms.back();
      ASSERT_TRUE(comm.on(work.get())
                      .all_reduce(data.data(), data.data(), 1000, DType::kFloat32, RedOp::kSum)
                      .ok());
      const Rank peer = 1 - world.rank();
      const Message both[] = {Message::to(peer, data.data(), 1000, DType::kFloat32),
                              Message::from(peer, other.data(), 1000, DType::kFloat32)};
      ASSERT_TRUE(comm.on(work.get()).exchange(both).ok());
      ASSERT_TRUE(comm.exchange(both).ok());
    }
    work.wait();
    (void)job_of(world).all_gather("");
    EXPECT_LE(fake_device()->streams(), before + 2 + 2);  // the ranks' own, and weft's
    (void)job_of(world).all_gather("");
  });
}

// Freeing memory may synchronize all streams of a GPU and block other threads' copies: a deadlock
// if one of these streams waits for a copy of weft's.
TEST_F(DeviceStreams, NoMemoryIsGivenBackWhileAStreamWaits) {
  run_ranks(places({2}), patient(), [](World& world) {
    FakeDevice& fake = *fake_device();
    TestStream work(fake), other(fake);
    DeviceBuffer data(work, 4000), large(work, 1 << 20);  // triggers the search for NICs
    Communicator comm = world.world(), looks = comm.duplicate();
    auto ends = std::make_unique<Communicator>(comm.duplicate());
    ASSERT_TRUE(ends->on(other.get()).barrier().ok());
    other.wait();
    { const PooledMemory kept(fake, PooledMemory::kPinned, PooledMemory::kKept + 1); }
    (void)job_of(world).all_gather("");
    if (world.rank() == 1) (void)job_of(world).all_gather("");  // the other rank's stream waits
    ASSERT_TRUE(comm.on(work.get())
                    .all_reduce(data.data(), data.data(), 1000, DType::kFloat32, RedOp::kSum)
                    .ok());
    if (world.rank() == 0)
      while (fake.streams_waiting(0) == 0) std::this_thread::yield();
    const std::size_t before = fake.late_returns();
    Request unpins =
        looks.on(other.get())
            .all_reduce_async(large.data(), large.data(), 1 << 18, DType::kFloat32, RedOp::kSum);
    if (world.rank() == 0) {
      ends.reset();
      EXPECT_EQ(fake.late_returns(), before);
      (void)job_of(world).all_gather("");
    }
    EXPECT_TRUE(unpins.wait().ok());
    work.wait();
    other.wait();
    if (world.rank() == 0) {
      EXPECT_EQ(fake.late_returns(), before);
    }
    (void)job_of(world).all_gather("");
  });
}

TEST_F(DeviceStreams, HostMemoryInTheOrderOfAStream) {
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

TEST_F(DeviceStreams, GraphsReplay) {
  run_ranks(places({3}), patient(), [](World& world) {
    FakeDevice& fake = *fake_device();
    TestStream work(fake, world.rank());
    constexpr std::size_t kCount = 50;
    DeviceBuffer data(work, kCount * 8), sum(work, kCount * 8);
    Communicator comm = world.world().on(work.get());
    std::vector<std::int64_t> mine(kCount, world.rank() + 1), got(kCount);
    fake.begin_capture(work.get());
    fake.copy(data.data(), mine.data(), kCount * 8, work.gpu(), work.get());
    ASSERT_TRUE(comm.all_reduce(data.data(), sum.data(), kCount, DType::kInt64, RedOp::kSum).ok());
    ASSERT_TRUE(comm.all_reduce(sum.data(), sum.data(), kCount, DType::kInt64, RedOp::kMax).ok());
    fake.copy(got.data(), sum.data(), kCount * 8, work.gpu(), work.get());
    EXPECT_EQ(comm.all_reduce_async(data.data(), sum.data(), kCount, DType::kInt64, RedOp::kSum)
                  .wait()
                  .code(),
              Code::kInvalidArgument);
    const FakeDevice::Graph graph = fake.end_capture(work.get());
    for (int replay = 1; replay <= 5; ++replay) {
      std::fill(mine.begin(), mine.end(), replay * (world.rank() + 1));
      fake.launch_graph(graph, work.get());
      // Calls and replays of one stream also keep their order.
      ASSERT_TRUE(comm.all_reduce(sum.data(), sum.data(), kCount, DType::kInt64, RedOp::kSum).ok());
      work.wait();
      EXPECT_EQ(got, std::vector<std::int64_t>(kCount, replay * 6));
      std::int64_t tripled = 0;
      std::memcpy(&tripled, sum.get().data(), 8);
      EXPECT_EQ(tripled, replay * 18);
    }
  });
}

// Waiting for an operation on a stream makes progress on other operations.
TEST_F(DeviceStreams, WhatElseIsUnderWayMovesMeanwhile) {
  for (const char* transport : {"auto", "tcp"}) {
    std::atomic<bool> moved = false;
    WorldOptions options;
    options.transport = transport;
    options.timeout = std::chrono::seconds(5);
    run_ranks(places({2}), options, [&](World& world) {
      TestStream work(*fake_device(), world.rank());
      testing::Brake brake(work.get());
      Communicator comm = world.world(), other = comm.duplicate();
      std::vector<std::int32_t> in(100000, 1), out(in.size()), few(100, 1);
      const auto sum = [&] {
        return other.all_reduce_async(in.data(), out.data(), in.size(), DType::kInt32, RedOp::kSum);
      };
      Request h;
      if (world.rank() == 0) h = sum();
      Request on_stream =
          comm.on(work.get())
              .all_reduce_async(few.data(), few.data(), few.size(), DType::kInt32, RedOp::kSum);
      std::thread releases;
      if (world.rank() == 0) {
        releases = std::thread([&] {
          const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(20);
          while (!moved && std::chrono::steady_clock::now() < end)
            std::this_thread::sleep_for(std::chrono::milliseconds(1));
          brake.release();
        });
      } else {
        std::this_thread::sleep_for(std::chrono::milliseconds(200));  // the lanes wait by now
        h = sum();
        EXPECT_TRUE(h.wait().ok()) << h.wait().to_string();
        moved = true;
        brake.release();
      }
      EXPECT_TRUE(on_stream.wait().ok()) << on_stream.wait().to_string();
      if (releases.joinable()) releases.join();
      EXPECT_TRUE(h.wait().ok());
      EXPECT_EQ(out, std::vector<std::int32_t>(out.size(), 2));
    });
  }
}

TEST_F(DeviceStreams, SeveralCommunicatorsAtOnce) {
  run_ranks(places({2, 2}, 1), {.transport = "shm"}, [](World& world) {
    TestStream one(*device()), two(*device());
    DeviceBuffer a(one, 8000), b(two, 8000);
    std::vector<std::byte> ones(8000);
    for (std::size_t i = 0; i < 1000; ++i) testing::put(ones.data(), i, DType::kInt64, 1);
    a.put(ones);
    b.put(ones);
    Communicator all = world.world(), host = world.host();
    // In another order on each rank: streams order calls per communicator only.
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
