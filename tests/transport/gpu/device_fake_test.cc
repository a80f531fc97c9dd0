// The fake device passes the device conformance cases, and is as strict as a GPU.
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include "support/device/device_cases.h"
#include "support/fakes/fake_device.h"

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
    FakeDevice peer;  // the parent's threads do not exist in this process
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

// A NIC's write becomes visible at the flush of its GPU, not before.
TEST(FakeDevice, WhatCardsWriteWantsFlushing) {
  FakeDevice& fake = *fake_device();
  auto* memory = static_cast<std::byte*>(fake.alloc(1, 100));
  EXPECT_EQ(fake.alias(memory), nullptr);
  EXPECT_FALSE(fake.takes_remote_writes(1));
  fake.give_nics(true);
  EXPECT_TRUE(fake.takes_remote_writes(1));
  EXPECT_EQ(fake.alias(memory + 7), fake.local(memory + 7));
  int on_stack = 0;
  EXPECT_EQ(fake.alias(&on_stack), nullptr);
  fake.hide_from_nics(1);
  EXPECT_EQ(fake.alias(memory), nullptr);
  fake.hide_from_nics(-1);

  const auto* there = static_cast<const std::byte*>(fake.local(memory));
  fake.write_remotely(memory + 9, std::vector<std::byte>(5, std::byte{3}));
  fake.flush_remote_writes(0);
  EXPECT_EQ(there[9], std::byte{0});
  fake.flush_remote_writes(1);
  EXPECT_EQ(there[8], std::byte{0});
  EXPECT_EQ(there[9], std::byte{3});
  EXPECT_EQ(there[13], std::byte{3});
  EXPECT_EQ(there[14], std::byte{0});
  // A write to memory freed meanwhile is dropped.
  fake.write_remotely(memory, std::vector<std::byte>(5, std::byte{4}));
  fake.free(memory);
  fake.flush_remote_writes(1);
  fake.give_nics(false);
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
