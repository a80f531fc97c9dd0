// labels: multiproc
// ctest: whole
// Long messages between ranks that have GPUs: read in the sender's device memory inside a host,
// brought by cards between hosts, where both ends have such memory; sent from host memory
// otherwise. On the fake device.
#include <gtest/gtest.h>

#include <atomic>
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <numeric>
#include <string>
#include <vector>

#include "coll/device_rooms.h"
#include "coll/message_notes.h"
#include "support/device_ranks.h"
#include "support/fake_device.h"
#include "support/ranks.h"

namespace weft {
namespace {

using testing::DeviceBuffer;
using testing::patient;
using testing::places;
using testing::run_ranks;
using testing::TestStream;

constexpr std::size_t kNoted = kNotedBytes / 8;  // elements

std::vector<std::byte> content(Rank from, int number, std::size_t count) {
  std::vector<std::int64_t> all(count);
  std::iota(all.begin(), all.end(), from * 1'000'000'000'000 + number * 1'000'000'000LL);
  const auto* const bytes = reinterpret_cast<const std::byte*>(all.data());
  return {bytes, bytes + count * 8};
}

// Of one rank, in either kind of memory.
class End {
 public:
  End(TestStream& work, bool on_device, std::size_t count)
      : device_(on_device ? std::make_unique<DeviceBuffer>(work, count * 8, 8) : nullptr),
        host_(on_device ? 0 : count * 8) {}
  void* data() { return device_ ? static_cast<void*>(device_->data()) : host_.data(); }
  void put(const std::vector<std::byte>& bytes) {
    if (device_)
      device_->put(bytes);
    else
      host_ = bytes;
  }
  std::vector<std::byte> get() const { return device_ ? device_->get() : host_; }
  bool intact_around() const { return !device_ || device_->intact_around(); }

 private:
  std::unique_ptr<DeviceBuffer> device_;
  std::vector<std::byte> host_;
};

class DeviceMessageDirect : public testing::OnFakeDevice {
 protected:
  // Rank 0 sends so many elements, and rank 1 receives them.
  void pass(World& world, TestStream& work, std::size_t count, bool from_device, bool to_device,
            bool sender_on_stream, bool receiver_on_stream, int number) {
    const bool sends = world.rank() == 0;
    const bool on_stream = sends ? sender_on_stream : receiver_on_stream;
    Communicator comm = on_stream ? world.world().on(work.get()) : world.world();
    End end(work, sends ? from_device : to_device, count);
    if (sends) end.put(content(0, number, count));
    const Status s = sends ? comm.send(end.data(), count, DType::kInt64, 1)
                           : comm.recv(end.data(), count, DType::kInt64, 0);
    ASSERT_TRUE(s.ok()) << s.to_string();
    work.wait();
    EXPECT_TRUE(end.get() == content(0, number, count))
        << count << " from " << (from_device ? "device" : "host") << " to "
        << (to_device ? "device" : "host") << ", " << sender_on_stream << receiver_on_stream;
    EXPECT_TRUE(end.intact_around());
  }
  void all_kinds(World& world, TestStream& work) {
    int number = 0;
    for (const std::size_t count : {kNoted - 1, kNoted, kNoted + 1, std::size_t{1} << 19})
      for (const bool from_device : {true, false})
        for (const bool to_device : {true, false})
          for (const bool sender_on_stream : {true, false})
            for (const bool receiver_on_stream : {true, false})
              pass(world, work, count, from_device, to_device, sender_on_stream, receiver_on_stream,
                   ++number);
  }
};

TEST_F(DeviceMessageDirect, AllKindsOfMemoryMeet) {
  run_ranks(places({2}), patient(), [&](World& world) {
    TestStream work(*device(), world.rank() + 1);
    all_kinds(world, work);
  });
}

// Copies that have host memory at one end, of `messages` long ones from GPU to GPU, called on
// streams, the sends first.
std::size_t host_copies_of(World& world, TestStream& work, int messages, std::size_t count) {
  FakeDevice& fake = *fake_device();
  Communicator comm = world.world().on(work.get());
  const Rank next = (world.rank() + 1) % world.size();
  const Rank last = (world.rank() + world.size() - 1) % world.size();
  std::vector<std::unique_ptr<DeviceBuffer>> ins, outs;
  for (int k = 0; k < messages; ++k) {
    ins.push_back(std::make_unique<DeviceBuffer>(work, count * 8));
    outs.push_back(std::make_unique<DeviceBuffer>(work, count * 8));
    ins.back()->put(content(world.rank(), k, count));
  }
  EXPECT_TRUE(world.world().barrier().ok());
  const std::size_t before = fake.host_copies();
  EXPECT_TRUE(world.world().barrier().ok());
  for (const auto& in : ins) EXPECT_TRUE(comm.send(in->data(), count, DType::kInt64, next).ok());
  for (const auto& out : outs) EXPECT_TRUE(comm.recv(out->data(), count, DType::kInt64, last).ok());
  work.wait();
  EXPECT_TRUE(world.world().barrier().ok());
  const std::size_t copies = fake.host_copies() - before;
  EXPECT_TRUE(world.world().barrier().ok());
  for (int k = 0; k < messages; ++k)
    EXPECT_TRUE(outs[static_cast<std::size_t>(k)]->get() == content(last, k, count)) << k;
  return copies;
}

TEST_F(DeviceMessageDirect, NoHostMemoryIsPassedBetweenGpus) {
  run_ranks(places({3}), patient(), [](World& world) {
    TestStream work(*device(), world.rank());
    EXPECT_EQ(host_copies_of(world, work, 4, 300001), 0u);
    EXPECT_EQ(host_copies_of(world, work, 1, kNoted - 1), 6u) << "short ones are sent";
  });
}

// The same between hosts, by cards that reach GPUs.
class DeviceMessageCards : public DeviceMessageDirect {
 protected:
  void SetUp() override {
    DeviceMessageDirect::SetUp();
    fake_->give_nics(true);
  }
  void TearDown() override {
    fake_->give_nics(false);
    fake_->hide_from_nics(-1);
    DeviceMessageDirect::TearDown();
  }
};

TEST_F(DeviceMessageCards, AllKindsOfMemoryMeet) {
  run_ranks(places({1, 1}), patient(), [&](World& world) {
    TestStream work(*device(), world.rank() + 1);
    all_kinds(world, work);
  });
}

TEST_F(DeviceMessageCards, NoHostMemoryIsPassedBetweenGpus) {
  for (const std::vector<int>& hosts : {std::vector<int>{1, 1, 1}, std::vector<int>{2, 2}})
    run_ranks(places(hosts, 2), patient(), [](World& world) {
      TestStream work(*device(), world.rank());
      EXPECT_EQ(host_copies_of(world, work, 3, 600'001), 0u);
    });
}

// What a card has written where the GPU cannot make sure of it may come at any time: nobody gets
// that memory any more.
TEST_F(DeviceMessageCards, AFlushThatFailsSpoilsNoLaterMessage) {
  constexpr std::size_t kCount = 2 * kNoted;
  run_ranks(places({1, 1}), patient(), [&](World& world) {
    TestStream work(*device(), world.rank());
    DeviceBuffer data(work, kCount * 8);
    data.put(content(0, 1, kCount));
    if (world.rank() == 1) fake_->fail_next("flush");
    const Status s = world.rank() == 0 ? world.world().send(data.data(), kCount, DType::kInt64, 1)
                                       : world.world().recv(data.data(), kCount, DType::kInt64, 0);
    const Status after = s.ok() ? world.world().barrier() : s;
    EXPECT_NE(after.message().find("flush on fake GPU"), std::string::npos) << after.to_string();
  });
  // What rank 1 sends lies in such memory while it receives, and has its GPU flushed.
  run_ranks(places({1, 1}), patient(), [&](World& world) {
    TestStream work(*device(), world.rank());
    Communicator comm = world.world();
    const Rank other = 1 - world.rank();
    DeviceBuffer in(work, kCount * 8), out(work, kCount * 8);
    in.put(content(world.rank(), 2, kCount));
    Handle sent;
    const auto send = [&] { sent = comm.send_async(in.data(), kCount, DType::kInt64, other); };
    const auto recv = [&] {
      EXPECT_TRUE(comm.recv(out.data(), kCount, DType::kInt64, other).ok());
    };
    const int before = fake_->copies_done(1);
    if (world.rank() == 1) {
      send();
      while (fake_->copies_done(1) == before) std::this_thread::yield();
      recv();
      EXPECT_TRUE(comm.barrier().ok());
    } else {
      send();
      EXPECT_TRUE(comm.barrier().ok());
      recv();
    }
    EXPECT_TRUE(sent.wait().ok());
    EXPECT_TRUE(out.get() == content(other, 2, kCount));
  });
}

// The card of one of them, or none is wanted.
TEST_F(DeviceMessageCards, WhatTheyDoNotReachIsSent) {
  for (const int hidden : {0, 1}) {
    fake_->hide_from_nics(hidden);
    run_ranks(places({1, 1}), patient(), [&](World& world) {
      TestStream work(*device(), world.rank());
      // From the one that is reached to the other a message finds that out.
      EXPECT_EQ(host_copies_of(world, work, 1, 100'001), 4u);
      EXPECT_EQ(host_copies_of(world, work, 3, 100'001), 12u);
    });
  }
  fake_->hide_from_nics(-1);
  setenv("WEFT_GPUDIRECT", "1000000", 1);
  run_ranks(places({1, 1}), patient(), [](World& world) {
    TestStream work(*device(), world.rank());
    EXPECT_EQ(host_copies_of(world, work, 1, 100'001), 4u);
    EXPECT_EQ(host_copies_of(world, work, 1, 200'001), 0u);
  });
  setenv("WEFT_GPUDIRECT", "off", 1);
  run_ranks(places({1, 1}), patient(), [](World& world) {
    TestStream work(*device(), world.rank());
    EXPECT_EQ(host_copies_of(world, work, 1, 200'001), 4u);
  });
  unsetenv("WEFT_GPUDIRECT");
}

TEST_F(DeviceMessageDirect, BetweenHostsAndWithIntegrityTheyAreSent) {
  run_ranks(places({1, 1}), patient(), [](World& world) {
    TestStream work(*device(), world.rank());
    EXPECT_EQ(host_copies_of(world, work, 1, kNoted), 4u);
  });
  WorldOptions checked = patient();
  checked.integrity = true;
  run_ranks(places({2}), checked, [](World& world) {
    TestStream work(*device(), world.rank());
    EXPECT_EQ(host_copies_of(world, work, 1, kNoted), 4u);
  });
}

// Where a GPU does not reach the other's memory, the first message of a peer finds that out.
TEST_F(DeviceMessageDirect, WhatIsNotReachedIsSent) {
  fake_->separate(true);
  run_ranks(places({2}), patient(), [](World& world) {
    TestStream work(*device(), world.rank());
    EXPECT_EQ(host_copies_of(world, work, 1, 100001), 4u);
    EXPECT_EQ(host_copies_of(world, work, 3, 100001), 12u);
  });
}

// Sends that nobody receives yet: once there is no room in device memory they pass host memory, and
// their stream goes on all the same.
TEST_F(DeviceMessageDirect, RoomEnds) {
  run_ranks(places({2}), patient(), [](World& world) {
    TestStream work(*device(), world.rank());
    Communicator comm = world.world().on(work.get());
    constexpr std::size_t kCount = 4 << 20;  // 32 MiB
    const int messages = static_cast<int>(DeviceRoom::kMostBytes / (kCount * 8)) + 2;
    DeviceBuffer data(work, kCount * 8);
    if (world.rank() == 0) {
      for (int k = 0; k < messages; ++k) {
        data.put(content(0, k, kCount));
        ASSERT_TRUE(comm.send(data.data(), kCount, DType::kInt64, 1).ok());
        work.wait();
      }
      EXPECT_TRUE(world.world().barrier().ok());
    } else {
      EXPECT_TRUE(world.world().barrier().ok());
      for (int k = 0; k < messages; ++k) {
        ASSERT_TRUE(comm.recv(data.data(), kCount, DType::kInt64, 0).ok());
        work.wait();
        EXPECT_TRUE(data.get() == content(0, k, kCount)) << k;
      }
    }
  });
}

TEST_F(DeviceMessageDirect, DifferentLengthsAreNamed) {
  for (const auto& [sent, received] :
       {std::pair{kNoted, kNoted + 1}, {kNoted, std::size_t{5}}, {std::size_t{5}, kNoted}})
    for (const bool on_device : {true, false})
      run_ranks(places({2}), patient(), [&](World& world) {
        TestStream work(*device(), world.rank());
        const bool sends = world.rank() == 0;
        const std::size_t count = sends ? sent : received;
        End end(work, on_device, count);
        const Status s = sends ? world.world().send(end.data(), count, DType::kInt64, 1)
                               : world.world().recv(end.data(), count, DType::kInt64, 0);
        const Status after = s.ok() ? world.world().barrier() : s;
        EXPECT_EQ(after.code(), Code::kMismatch) << after.to_string();
        for (const std::size_t n : {sent, received})
          EXPECT_NE(after.message().find(std::to_string(n) + " x int64"), std::string::npos)
              << after.message();
      });
}

// The receiver's GPU fails at one of the calls that reading takes.
TEST_F(DeviceMessageDirect, AReadThatFailsIsNamedOnBothRanks) {
  run_ranks(places({2}), patient(), [](World& world) {
    TestStream work(*device(), world.rank());
    DeviceBuffer data(work, kNotedBytes);
    EXPECT_TRUE(world.world().barrier().ok());
    const int before = fake_device()->copies_done(0);
    Handle h;
    if (world.rank() == 0) {
      h = world.world().send_async(data.data(), kNoted, DType::kInt64, 1);
      while (fake_device()->copies_done(0) == before) std::this_thread::yield();
    }
    EXPECT_TRUE(world.world().barrier().ok());
    if (world.rank() == 1) {
      fake_device()->fail_next("copy");
      h = world.world().recv_async(data.data(), kNoted, DType::kInt64, 0);
    }
    const Status s = h.wait();
    EXPECT_EQ(s.code(), Code::kTransport) << s.to_string();
    EXPECT_NE(s.message().find("recv: copy on fake GPU"), std::string::npos) << s.message();
    EXPECT_EQ(s.rank(), 1);
  });
}

}  // namespace
}  // namespace weft
