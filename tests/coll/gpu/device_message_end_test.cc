// labels: multiproc
// ctest: whole
// End of send, recv and exchange in stream order, and of their World and communicator, with and
// without errors, on the fake device.
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <barrier>
#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "coll/runtime/internals.h"
#include "support/device/device_ranks.h"
#include "support/fakes/fake_device.h"
#include "support/jobs/ranks.h"
#include "support/process/no_threads.h"

namespace weft {
namespace {

using testing::Brake;
using testing::DeviceBuffer;
using testing::patient;
using testing::places;
using testing::run_ranks;
using testing::TestStream;

class DeviceMessageEnds : public testing::OnFakeDevice {
 protected:
  void TearDown() override {
    EXPECT_EQ(fake_->events(), 0) << "events that nobody has freed";
    OnFakeDevice::TearDown();
  }
};

constexpr DType kType = DType::kInt64;

// The stream has passed the send, but no rank has received it yet.
TEST_F(DeviceMessageEnds, AWorldEndsAfterItsSendsAreTaken) {
  constexpr std::size_t kCount = 400000;
  run_ranks(places({2}), patient(), [](World& world) {
    TestStream work(*device());
    Communicator comm = world.world().on(work.get());
    const std::vector<std::int64_t> mine(kCount, 17);
    if (world.rank() == 0) {
      ASSERT_TRUE(comm.send(mine.data(), kCount, kType, 1).ok());
      work.wait();
      return;
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
    std::vector<std::int64_t> got(kCount);
    ASSERT_TRUE(comm.recv(got.data(), kCount, kType, 0).ok());
    work.wait();
    EXPECT_EQ(got, mine);
  });
}

// A call whose thread cannot start must not stay registered with the communicator.
TEST_F(DeviceMessageEnds, ACallThatGetsNoThreadFailsAndTheNextDoesNot) {
  std::barrier together(2);
  std::optional<testing::NoThreads> none;
  run_ranks(places({2}), patient(), [&](World& world) {
    TestStream work(*device());
    const Rank peer = 1 - world.rank();
    DeviceBuffer in(work, 800), out(work, 800);
    in.put(std::vector<std::byte>(800));
    Communicator comm = world.world().on(work.get());
    const Message both[] = {Message::to(peer, in.data(), 100, kType),
                            Message::from(peer, out.data(), 100, kType)};
    EXPECT_TRUE(comm.exchange(both).ok());
    work.wait();
    together.arrive_and_wait();
    if (world.rank() == 0) none.emplace();
    together.arrive_and_wait();
    const Status status = comm.all_reduce(in.data(), out.data(), 100, kType, RedOp::kSum);
    EXPECT_EQ(status.code(), Code::kTransport);
    EXPECT_NE(status.message().find("pids.max"), std::string::npos) << status.to_string();
    together.arrive_and_wait();
    if (world.rank() == 0) none.reset();
    together.arrive_and_wait();
    EXPECT_TRUE(comm.all_reduce(in.data(), out.data(), 100, kType, RedOp::kSum).ok());
    work.wait();
    EXPECT_EQ(out.get(), std::vector<std::byte>(800));
  });
}

TEST_F(DeviceMessageEnds, ACommunicatorEndsAfterItsMessages) {
  run_ranks(places({2}), patient(), [](World& world) {
    TestStream work(*device());
    const Rank peer = 1 - world.rank();
    DeviceBuffer in(work, 8000), out(work, 8000);
    for (int k = 0; k < 10; ++k) {
      const std::vector<std::byte> mine(8000, static_cast<std::byte>(k * 2 + world.rank()));
      in.put(mine);
      Communicator comm = world.world().duplicate().on(work.get());
      const Message both[] = {Message::to(peer, in.data(), 1000, kType),
                              Message::from(peer, out.data(), 1000, kType)};
      ASSERT_TRUE(comm.exchange(both).ok());
      comm = Communicator();
      EXPECT_EQ(out.get(), std::vector<std::byte>(8000, static_cast<std::byte>(k * 2 + peer)));
    }
  });
  EXPECT_EQ(fake_->late_writes(), 0u);
}

// detach() does not wait, and pending messages keep the communicator alive.
TEST_F(DeviceMessageEnds, DetachedMessagesArrive) {
  run_ranks(places({2}), patient(), [](World& world) {
    TestStream work(*device());
    const Rank peer = 1 - world.rank();
    for (int k = 0; k < 10; ++k) {
      DeviceBuffer in(work, 8000), out(work, 8000), sum(work, 8000);
      in.put(std::vector<std::byte>(8000, static_cast<std::byte>(k * 2 + world.rank())));
      Communicator comm = world.world().duplicate().on(work.get());
      comm.recv_async(out.data(), 1000, kType, peer).detach();
      TestStream other(*device());
      comm.on(other.get()).send_async(in.data(), 1000, kType, peer).detach();
      comm.all_reduce_async(out.data(), sum.data(), 1000, kType, RedOp::kMax).detach();
      comm = Communicator();
      EXPECT_EQ(out.get(), std::vector<std::byte>(8000, static_cast<std::byte>(k * 2 + peer)));
      EXPECT_EQ(sum.get(), std::vector<std::byte>(8000, static_cast<std::byte>(k * 2 + 1)));
    }
  });
}

// Buffered sends are bounded: the stream waits until the receiver takes some.
TEST_F(DeviceMessageEnds, WhatIsHeldIsBounded) {
  run_ranks(places({2}), patient(), [](World& world) {
    TestStream work(*device());
    Communicator comm = world.world(), ordered = comm.on(work.get());
    constexpr std::size_t kBytes = std::size_t{96} << 20;  // three exceed the bound
    constexpr int kTimes = 4;
    std::atomic<std::uint32_t>* passed = fake_device()->words(1);
    const std::vector<std::int8_t> mine(world.rank() == 0 ? kBytes : 0, 3);
    if (world.rank() == 0) {
      for (int k = 0; k < kTimes; ++k)
        ASSERT_TRUE(ordered.send(mine.data(), kBytes, DType::kInt8, 1).ok());
      fake_device()->write_word(work.get(), passed, 1);
      std::this_thread::sleep_for(std::chrono::milliseconds(500));
      EXPECT_EQ(passed->load(), 0u);
    }
    ASSERT_TRUE(comm.barrier().ok());
    std::vector<std::int8_t> got(world.rank() == 1 ? kBytes : 0);
    for (int k = 0; k < kTimes && world.rank() == 1; ++k)
      ASSERT_TRUE(comm.recv(got.data(), kBytes, DType::kInt8, 0).ok());
    work.wait();
    EXPECT_EQ(passed->load(), world.rank() == 0 ? 1u : 0u);
    EXPECT_TRUE(std::ranges::all_of(got, [](std::int8_t v) { return v == 3; }));
    fake_device()->free_words(passed);
  });
}

// Both ranks receive before they send, a deadlock in user code: streams are released, and the next
// call returns the error.
TEST_F(DeviceMessageEnds, RanksThatWaitForEachOtherAreTold) {
  WorldOptions options;
  options.timeout = std::chrono::milliseconds(5000);
  std::atomic<int> told{0};
  run_ranks(places({2}), options, [&](World& world) {
    TestStream work(*device());
    Communicator comm = world.world().on(work.get());
    const Rank peer = 1 - world.rank();
    DeviceBuffer in(work, 8000), out(work, 8000);
    Request received = comm.recv_async(out.data(), 1000, kType, peer);
    Request sent = comm.send_async(in.data(), 1000, kType, peer);
    const Status s = received.wait();
    EXPECT_FALSE(s.ok());
    told += s.message().find("sendrecv did not finish within 5000 ms") != std::string::npos;
    EXPECT_FALSE(sent.wait().ok()) << s.to_string();
    work.wait();
    EXPECT_FALSE(comm.send(in.data(), 1000, kType, peer).ok());
  });
  EXPECT_GE(told, 1);
}

TEST_F(DeviceMessageEnds, AnAbortLetsStreamsGo) {
  run_ranks(places({2}), patient(), [](World& world) {
    TestStream work(*device());
    Communicator comm = world.world().on(work.get());
    DeviceBuffer out(work, 8000);
    Brake brake(work.get());  // blocks the second one, which never starts
    Request waits = comm.recv_async(out.data(), 1000, kType, 1 - world.rank());
    TestStream other(*device());
    Request posted =
        world.world().on(other.get()).recv_async(out.data(), 1000, kType, 1 - world.rank());
    if (world.rank() == 0) world.abort("enough");
    for (Request* h : {&waits, &posted}) {
      const Status s = h->wait();
      EXPECT_EQ(s.code(), Code::kAborted);
      EXPECT_NE(s.message().find("enough"), std::string::npos) << s.message();
    }
    other.wait();
    brake.release();
    work.wait();
  });
}

TEST_F(DeviceMessageEnds, AFailureOfTheGpuReachesAllRanks) {
  run_ranks(places({2}), patient(), [](World& world) {
    FakeDevice& fake = *fake_device();
    TestStream work(fake);
    Communicator comm = world.world().on(work.get());
    DeviceBuffer data(work, 8000);
    ASSERT_TRUE(job_of(world).all_gather("").size() == 2);
    Request h;
    if (world.rank() == 0) {
      fake.fail_next("copy");
      h = comm.send_async(data.data(), 1000, kType, 1);
    } else {
      h = comm.recv_async(data.data(), 1000, kType, 0);
    }
    const Status s = h.wait();
    EXPECT_FALSE(s.ok());
    EXPECT_NE(s.message().find("send: copy on fake GPU"), std::string::npos) << s.to_string();
    work.wait();
  });
}

// The copy to the device fails after the data arrived in host memory.
TEST_F(DeviceMessageEnds, WhatArrivesAndCannotBeCopiedUp) {
  run_ranks(places({2}), patient(), [](World& world) {
    FakeDevice& fake = *fake_device();
    TestStream work(fake);
    Communicator comm = world.world().on(work.get());
    DeviceBuffer data(work, 8000);
    const std::vector<std::int64_t> mine(1000, 17);
    ASSERT_TRUE(job_of(world).all_gather("").size() == 2);
    if (world.rank() == 0) {
      fake.fail_next("copy");
      (void)comm.send(mine.data(), 1000, kType, 1);
    } else {
      const Status s = comm.recv_async(data.data(), 1000, kType, 0).wait();
      EXPECT_NE(s.message().find("recv: copy on fake GPU"), std::string::npos) << s.to_string();
    }
    work.wait();
  });
}

TEST_F(DeviceMessageEnds, DifferentSizesShowBothSides) {
  std::atomic<int> told{0};
  run_ranks(places({2}), patient(), [&](World& world) {
    TestStream work(*device());
    Communicator comm = world.world().on(work.get());
    DeviceBuffer data(work, 8000);
    Request h = world.rank() == 0 ? comm.send_async(data.data(), 1000, kType, 1)
                                  : comm.recv_async(data.data(), 999, kType, 0);
    (void)h.wait();
    const Status later = comm.barrier();
    told += later.message().find("1000 x int64") != std::string::npos &&
            later.message().find("999 x int64") != std::string::npos;
    work.wait();
  });
  EXPECT_GE(told, 1);
}

}  // namespace
}  // namespace weft
