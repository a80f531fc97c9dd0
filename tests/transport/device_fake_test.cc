// The fake device keeps the seam's promises, and is as strict as a GPU.
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include "support/device_cases.h"
#include "transport/device_fake.h"

namespace weft {
namespace {

TEST(FakeDevice, DoesWhatTheSeamSays) { testing::run_device_cases(*fake_device()); }

TEST(FakeDevice, TheHostMayNotTouchItsMemory) {
  FakeDevice& fake = *fake_device();
  auto* memory = static_cast<volatile char*>(fake.alloc(0, 10));
  EXPECT_DEATH(memory[3] = 1, "");
  fake.free(const_cast<char*>(memory));
}

TEST(FakeDevice, AnotherProcessMapsItsMemory) {
  FakeDevice& fake = *fake_device();
  void* memory = fake.alloc(1, 10000);
  std::memset(fake.local(memory), 7, 10000);
  const ExportedMemory exported = fake.export_memory(static_cast<char*>(memory) + 20);
  const pid_t owner = getpid();
  const pid_t child = fork();
  if (child == 0) {
    FakeDevice peer;  // the parent's has threads that are not here
    auto* seen = static_cast<std::byte*>(peer.open(exported, owner, 0));
    auto* there = static_cast<std::byte*>(peer.local(seen + 9999));
    const bool right = there[0] == std::byte{7} && peer.residence(seen).gpu == 1;
    there[0] = std::byte{8};
    peer.close(seen);
    _exit(right && peer.allocations() == 0 ? 0 : 1);
  }
  int status = 0;
  waitpid(child, &status, 0);
  EXPECT_EQ(status, 0);
  EXPECT_EQ(static_cast<std::byte*>(fake.local(memory))[9999], std::byte{8});
  fake.free(memory);
}

TEST(FakeDevice, NotEverythingCanBeMapped) {
  FakeDevice& fake = *fake_device();
  void* pool = fake.alloc_private(0, 10);
  EXPECT_THROW((void)fake.export_memory(pool), Error);
  void* managed = fake.alloc_managed(10);
  EXPECT_EQ(fake.residence(managed).kind, MemoryKind::kManaged);
  static_cast<char*>(managed)[0] = 1;
  fake.free(pool);
  fake.free(managed);
  EXPECT_THROW(fake.free(pool), Error);
}

TEST(FakeDevice, CapturesGraphs) {
  FakeDevice& fake = *fake_device();
  const Device::Stream stream = fake.make_stream(0);
  int runs = 0;
  fake.begin_capture(stream);
  EXPECT_TRUE(fake.capturing(stream));
  fake.put(stream, [&] { ++runs; });
  const FakeDevice::Graph graph = fake.end_capture(stream);
  fake.synchronize(stream);
  EXPECT_EQ(runs, 0);
  fake.launch_graph(graph, stream);
  fake.launch_graph(graph, stream);
  fake.synchronize(stream);
  EXPECT_EQ(runs, 2);
  fake.free_stream(stream);
}

}  // namespace
}  // namespace weft
