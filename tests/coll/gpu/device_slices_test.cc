// labels: multiproc
// ctest: whole
// sanitize: long
// Long device-memory messages between hosts travel in slices that overlap with their copies; on and
// off a stream, to and from any memory. Uses the fake device.
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "coll/runtime/internals.h"
#include "support/device/device_ranks.h"
#include "support/fakes/fake_device.h"
#include "support/jobs/ranks.h"
#include "transport/gpu/pinned.h"

namespace weft {
namespace {

using testing::DeviceBuffer;
using testing::patient;
using testing::places;
using testing::run_ranks;
using testing::TestStream;

class DeviceSlices : public testing::OnFakeDevice {
 protected:
  void TearDown() override {
    for (int gpu = 0; gpu < FakeDevice::kGpus; ++gpu) fake_->let_copy(gpu, -1);
    OnFakeDevice::TearDown();
  }
};

using Bytes = std::vector<std::byte>;
constexpr DType kByte = DType::kUInt8;

// Data from rank `from` to rank `to`. The period is prime, so that no two slices are alike.
Bytes bytes_of(Rank from, Rank to, std::size_t count) {
  Bytes period(4093), all(count);
  std::uint32_t state = static_cast<std::uint32_t>(from * 31 + to + 1);
  for (std::byte& b : period)
    b = static_cast<std::byte>((state = state * 1664525 + 1013904223) >> 24);
  for (std::size_t at = 0; at < count; at += period.size())
    std::copy_n(period.begin(), std::min(period.size(), count - at),
                all.begin() + static_cast<std::ptrdiff_t>(at));
  return all;
}

// Waits until the GPU has made that many copies; false after a minute.
bool copied(int gpu, int copies) {
  const auto until = std::chrono::steady_clock::now() + std::chrono::minutes(1);
  while (fake_device()->copies_done(gpu) < copies) {
    if (std::chrono::steady_clock::now() > until) return false;
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  return true;
}

constexpr std::size_t kLong = 5 * kStagedSlice + 13;

// The sender's GPU blocks after two slices, which still reach the other GPU.
TEST_F(DeviceSlices, ArriveWhileOthersAreCopied) {
  for (const bool on_stream : {false, true})
    run_ranks(places({1, 1}), patient(), [&](World& world) {
      const Rank me = world.rank();
      TestStream work(*device(), me);
      Communicator comm = on_stream ? world.world().on(work.get()) : world.world();
      const Bytes mine = bytes_of(0, 1, kLong);
      DeviceBuffer data(work, kLong);
      if (me == 0) {
        data.put(mine);
        fake_device()->let_copy(0, 2);
      }
      ASSERT_EQ(job_of(world).all_gather("").size(), 2u);
      Request h;
      if (me == 0) {
        h = comm.send_async(data.data(), kLong, kByte, 1);
      } else {
        const int before = fake_device()->copies_done(1);
        h = comm.recv_async(data.data(), kLong, kByte, 0);
        EXPECT_TRUE(copied(1, before + 2));
        EXPECT_FALSE(h.test());
        fake_device()->let_copy(0, -1);
      }
      EXPECT_TRUE(h.wait().ok());
      EXPECT_EQ(data.get(), mine);
      EXPECT_TRUE(data.intact_around());
    });
}

// Likewise for a collective: the first slice reaches the other GPU while the owner's GPU is
// blocked, and does not wait for other slices.
TEST_F(DeviceSlices, OfUnevenBlocksArriveWhileOthersAreCopied) {
  for (const bool on_stream : {false, true})
    run_ranks(places({1, 1}), patient(), [&](World& world) {
      const Rank me = world.rank();
      TestStream work(*device(), me);
      Communicator comm = on_stream ? world.world().on(work.get()) : world.world();
      const std::vector<std::size_t> counts = {kLong, kLong - 1};
      const std::size_t own = counts[static_cast<std::size_t>(me)];
      Bytes want = bytes_of(0, 0, counts[0]);
      const Bytes second = bytes_of(1, 1, counts[1]);
      want.insert(want.end(), second.begin(), second.end());
      DeviceBuffer block(work, own), all(work, counts[0] + counts[1]);
      block.put(bytes_of(me, me, own));
      work.wait();
      if (me == 0) fake_device()->let_copy(0, 1);
      const int before = fake_device()->copies_done(1);
      ASSERT_EQ(job_of(world).all_gather("").size(), 2u);
      Request h = comm.all_gather_v_async(block.data(), all.data(), counts, kByte);
      if (me == 1) {
        EXPECT_TRUE(copied(1, before + 3 + 2));  // three slices down, both blocks of the first up
        EXPECT_FALSE(h.test());
        fake_device()->let_copy(0, -1);
      }
      EXPECT_TRUE(h.wait().ok());
      EXPECT_EQ(all.get(), want);
      EXPECT_TRUE(all.intact_around());
    });
}

// A buffer in host or device memory, unaligned.
class AnyBuffer {
 public:
  AnyBuffer(TestStream& work, bool on_device, std::size_t bytes)
      : on_device_(on_device),
        device_(work, on_device ? bytes : 0, 3),
        host_(on_device ? 0 : bytes) {}
  void* data() { return on_device_ ? device_.data() : host_.data(); }
  void put(const Bytes& from) { on_device_ ? device_.put(from) : void(host_ = from); }
  Bytes get() const { return on_device_ ? device_.get() : host_; }
  bool intact_around() const { return device_.intact_around(); }

 private:
  bool on_device_;
  DeviceBuffer device_;
  Bytes host_;
};

// Every rank exchanges with its neighbors and itself at once: each end in device or host memory, on
// a stream or not, with lengths around multiples of a slice and zero.
TEST_F(DeviceSlices, OfAllLengthsAndMemories) {
  for (const std::vector<int>& hosts : {std::vector<int>{3}, std::vector<int>{2, 1}})
    for (const bool integrity : {false, true}) {
      WorldOptions options = patient();
      options.integrity = integrity;
      run_ranks(places(hosts), options, [](World& world) {
        const Rank me = world.rank(), n = world.size();
        const Rank next = (me + 1) % n, last = (me + n - 1) % n;
        TestStream work(*device(), me);
        int turn = me;  // so that the ends of a message differ
        for (const std::size_t count : {std::size_t{0}, std::size_t{1}, kStagedSlice - 1,
                                        kStagedSlice, kStagedSlice + 1, 3 * kStagedSlice + 7})
          for (int k = 0; k < 2; ++k, ++turn) {
            const bool from_device = turn & 1, to_device = turn & 2, on_stream = (turn + k) & 1;
            Communicator comm = on_stream ? world.world().on(work.get()) : world.world();
            AnyBuffer to_next(work, from_device, count), to_me(work, !from_device, count);
            AnyBuffer from_last(work, to_device, count), from_me(work, !to_device, count);
            to_next.put(bytes_of(me, next, count));
            to_me.put(bytes_of(me, me, count));
            const std::vector<Message> messages{{true, next, to_next.data(), count, kByte},
                                                {true, me, to_me.data(), count, kByte},
                                                {false, last, from_last.data(), count, kByte},
                                                {false, me, from_me.data(), count, kByte}};
            ASSERT_TRUE(comm.exchange(messages).ok());
            work.wait();
            EXPECT_EQ(from_last.get(), bytes_of(last, me, count)) << count;
            EXPECT_EQ(from_me.get(), bytes_of(me, me, count)) << count;
            EXPECT_TRUE(from_last.intact_around() && from_me.intact_around());
          }
      });
    }
}

// Many messages at once between two ranks, both ways, received in call order.
TEST_F(DeviceSlices, KeepTheOrderOfTheirCalls) {
  run_ranks(places({1, 1}), patient(), [](World& world) {
    const Rank me = world.rank(), peer = 1 - me;
    TestStream work(*device(), me);
    Communicator comm = world.world();
    std::vector<std::size_t> counts{kLong, 1, 2 * kStagedSlice, 0, kStagedSlice + 1, 70000};
    std::vector<std::unique_ptr<DeviceBuffer>> in, out;
    std::vector<Request> handles;
    for (const std::size_t count : counts) {
      in.push_back(std::make_unique<DeviceBuffer>(work, count));
      out.push_back(std::make_unique<DeviceBuffer>(work, count));
      in.back()->put(bytes_of(me, peer, count));
      handles.push_back(comm.send_async(in.back()->data(), count, kByte, peer));
    }
    for (std::size_t i = 0; i < counts.size(); ++i)
      handles.push_back(comm.recv_async(out[i]->data(), counts[i], kByte, peer));
    for (Request& h : handles) EXPECT_TRUE(h.wait().ok());
    for (std::size_t i = 0; i < counts.size(); ++i)
      EXPECT_EQ(out[i]->get(), bytes_of(peer, me, counts[i])) << i;
  });
}

// The first slices have the same size on both sides: the calls' arguments distinguish them.
TEST_F(DeviceSlices, DifferentLengthsShowBothSides) {
  for (const std::size_t other : {kLong - 1, 2 * kStagedSlice}) {
    std::atomic<int> told{0};
    run_ranks(places({1, 1}), patient(), [&](World& world) {
      TestStream work(*device(), world.rank());
      DeviceBuffer data(work, kLong);
      Request h = world.rank() == 0 ? world.world().send_async(data.data(), kLong, kByte, 1)
                                    : world.world().recv_async(data.data(), other, kByte, 0);
      (void)h.wait();
      const std::string later = world.world().barrier().message();
      told += later.find(std::to_string(kLong) + " x uint8") != std::string::npos &&
              later.find(std::to_string(other) + " x uint8") != std::string::npos;
    });
    EXPECT_EQ(told, 2);
  }
}

// The job ends with some slices received, some copied and some waiting: both ends get the error,
// and no memory that a GPU still uses is accessed or reused.
TEST_F(DeviceSlices, AnEndInTheMiddleReachesBothEnds) {
  const std::size_t before = fake_->allocations();
  for (int let = 0; let < 4; ++let)
    run_ranks(places({1, 1}), patient(), [&](World& world) {
      const Rank me = world.rank();
      TestStream work(*device(), me);
      DeviceBuffer data(work, kLong);
      if (me == 0) fake_device()->let_copy(0, let);
      ASSERT_EQ(job_of(world).all_gather("").size(), 2u);
      const int done = fake_device()->copies_done(1);
      Request h = me == 0 ? world.world().send_async(data.data(), kLong, kByte, 1)
                          : world.world().recv_async(data.data(), kLong, kByte, 0);
      if (me == 1) {
        EXPECT_TRUE(copied(1, done + let));
        world.abort("enough");
        std::this_thread::sleep_for(std::chrono::milliseconds(20));
        fake_device()->let_copy(0, -1);
      }
      const Status s = h.wait();
      EXPECT_EQ(s.code(), Code::kAborted) << s.to_string();
      EXPECT_NE(s.message().find("enough"), std::string::npos) << s.message();
    });
  EXPECT_EQ(fake_->allocations(), before);
}

}  // namespace
}  // namespace weft
