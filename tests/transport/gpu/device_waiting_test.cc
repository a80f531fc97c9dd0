// Calls that must not be made while a stream waits for weft: the fake device reports them, and
// mappings of peers' memory are deferred.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <string>

#include "support/device/device_ranks.h"
#include "support/fakes/fake_device.h"
#include "topo/base/status.h"
#include "transport/gpu/device_peers.h"
#include "transport/gpu/gates.h"
#include "transport/gpu/pinned.h"

namespace weft {
namespace {

using ::testing::Each;
using ::testing::HasSubstr;
using ::testing::SizeIs;
using testing::TestStream;

std::string said(const std::function<void()>& call) {
  try {
    call();
  } catch (const Error& e) {
    return e.what();
  }
  return "";
}

struct NoRun {
  static void run(const void*, void* (*)(const void*)) {}
  static DeviceWork work(const char* title) {
    static const int nothing = 0;
    return {.run = run, .args = &nothing, .bytes = sizeof nothing, .title = title};
  }
};

TEST(DeviceWaiting, TheFakeRefusesByNameWhatAGpuMayLetWait) {
  const testing::NoLateMemory strict;
  FakeDevice& fake = *fake_device();
  TestStream stream(fake, 0), other(fake, 1);
  void* const memory = fake.alloc(0, 64);
  void* const foreign = fake.alloc(0, 64);
  const ExportedMemory exported = fake.export_memory(foreign);
  int pinned = 0;
  std::atomic<std::uint32_t>* const spare = fake.words(1);
  fake.load(NoRun::work("known"), 0);
  const std::size_t before = fake.late_calls().size();
  {
    std::atomic<std::uint32_t>* const word = fake.words(1);
    fake.wait_word(stream.get(), word, 1);
    EXPECT_THAT(said([&] { (void)fake.alloc(0, 64); }), HasSubstr("alloc on fake GPU 0"));
    EXPECT_THAT(said([&] { fake.pin(&pinned, 4); }), HasSubstr("pin on fake GPU 0"));
    EXPECT_THAT(said([&] { (void)fake.words(1); }), HasSubstr("words on fake GPU 0"));
    EXPECT_THAT(said([&] { (void)fake.open(exported, getpid(), 0); }), HasSubstr("open on"));
    EXPECT_THAT(said([&] { fake.launch(NoRun::work("new"), 0, stream.get()); }),
                HasSubstr("load of new on fake GPU 0"));
    EXPECT_EQ(said([&] { fake.launch(NoRun::work("known"), 0, stream.get()); }), "");
    // Calls for memory of another GPU, and streams of another thread, are not late.
    EXPECT_EQ(said([&] { fake.free(fake.alloc(1, 64)); }), "");
    std::thread([&] { EXPECT_EQ(said([&] { (void)fake.words(1); }), ""); }).join();
    // In a thread of weft, which serves all streams, the call is late.
    std::thread([&] {
      fake.enter_thread();
      EXPECT_THAT(said([&] { (void)fake.words(1); }), HasSubstr("by a thread of weft's"));
    }).join();
    fake.free(memory);
    fake.free_words(spare);
    word->store(1);
    stream.wait();
    fake.free_words(word);
    EXPECT_EQ(said([&] { fake.free(fake.alloc(0, 64)); }), "");
  }
  fake.free(foreign);
  const std::vector<std::string> late = fake.late_calls();
  EXPECT_THAT(std::vector(late.begin() + static_cast<std::ptrdiff_t>(before), late.end()),
              ::testing::ElementsAre(HasSubstr("free on"), HasSubstr("free on"),
                                     HasSubstr("free_words on")));
}

TEST(DeviceWaiting, MemoryOfPeersIsMappedOnceNoStreamWaits) {
  const testing::NoLateMemory strict;
  FakeDevice& fake = *fake_device();
  TestStream stream(fake);
  void* const memory = fake.alloc(0, 5000);
  DeviceAddress address = device_address(fake, memory, 5000, fake.residence(memory));
  address.process = 1;  // emulates another process
  std::atomic<std::size_t> waiting{0};
  DevicePeers peers;
  {
    StreamFences fences(fake, waiting);
    const StreamFence fence = fences.take();
    fences.put(fence, stream.get(), false);
    EXPECT_EQ(waiting, 1u);
    EXPECT_EQ(peers.acquire(fake, address, 0), nullptr);
    EXPECT_EQ(peers.size(), 0u);
    EXPECT_FALSE(unless_streams_wait([&] { peers.open_wanted(fake); }));
    fences.open(fence, false);
    EXPECT_EQ(waiting, 0u);
    EXPECT_TRUE(unless_streams_wait([&] { peers.open_wanted(fake); }));
    EXPECT_EQ(peers.size(), 1u);
    EXPECT_NE(peers.acquire(fake, address, 0), nullptr);
    peers.release(address, 0);

    // A failed mapping is reported at the next request.
    void* const other = fake.alloc(0, 5000);
    DeviceAddress second = device_address(fake, other, 5000, fake.residence(other));
    second.process = 1;
    const StreamFence again = fences.take();
    fences.put(again, stream.get(), false);
    EXPECT_EQ(peers.acquire(fake, second, 0), nullptr);
    fences.open(again, false);
    fake.fail_next("open");
    unless_streams_wait([&] { peers.open_wanted(fake); });
    EXPECT_THAT(said([&] { (void)peers.acquire(fake, second, 0); }), HasSubstr("injected"));
    EXPECT_NE(peers.acquire(fake, second, 0), nullptr);
    peers.release(second, 0);
    stream.wait();
    fake.free(other);
  }
  fake.free(memory);
}

// The stream reaches a fence long after it was opened: until then the fence's words are not reused.
TEST(DeviceWaiting, AFenceIsNotUsedAgainBeforeItsStreamHasPassed) {
  FakeDevice& fake = *fake_device();
  TestStream stream(fake);
  std::atomic<std::size_t> waiting{0};
  std::atomic<std::uint32_t>* const word = fake.words(1);
  {
    StreamFences fences(fake, waiting);
    const StreamFence first = fences.take();
    fake.hold(stream.get(), word);
    fences.put(first, stream.get(), false);
    fences.open(first, false);
    EXPECT_NE(fences.take().done, first.done);
    word->store(1);
    stream.wait();
    EXPECT_EQ(fences.take().done, first.done);
  }
  fake.free_words(word);
}

// Messages of 128 MiB must not pin their memory anew each time.
TEST(DeviceWaiting, PinnedMemoryInUseIsKept) {
  const testing::NoLateMemory strict;
  FakeDevice& fake = *fake_device();
  TestStream stream(fake);
  constexpr std::size_t kLong = 2 * PooledMemory::kKept;
  const auto take = [&] { const PooledMemory room(fake, PooledMemory::kPinned, kLong); };
  take();
  PooledMemory::trim();
  std::atomic<std::uint32_t>* const word = fake.words(1);
  fake.wait_word(stream.get(), word, 1);
  EXPECT_EQ(said(take), "");  // pinning would be refused
  word->store(1);
  stream.wait();
  fake.free_words(word);
}

}  // namespace
}  // namespace weft
