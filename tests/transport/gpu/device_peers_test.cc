// Mapped device memory of other processes.
#include "transport/gpu/device_peers.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdlib>
#include <cstring>

#include "support/fakes/fake_device.h"
#include "topo/base/status.h"

namespace weft {
namespace {

// CUDA may refuse memory at an address where freed memory of its owner is still mapped.
TEST(DevicePeers, WhatWasReplacedIsClosedAlsoWhenTheNewCannotBeOpened) {
  FakeDevice& fake = *fake_device();
  void* const first = fake.alloc(0, 5000);
  void* const second = fake.alloc(0, 5000);
  DeviceAddress before = device_address(fake, first, 5000, fake.residence(first));
  DeviceAddress after = device_address(fake, second, 5000, fake.residence(second));
  before.process = after.process = 1;  // emulates another process, which
  after.base = before.base;            // freed the first and got the second at the same address
  after.at = before.at;

  DevicePeers peers;
  (void)peers.acquire(fake, before, 0);
  peers.release(before, 0);
  fake.fail_next("open");
  EXPECT_THROW((void)peers.acquire(fake, after, 0), Error);
  peers.trim(fake);
  EXPECT_EQ(peers.size(), 0u);
  (void)peers.acquire(fake, after, 0);
  peers.release(after, 0);
  EXPECT_EQ(peers.size(), 1u);
  const std::size_t mapped = fake.allocations();
  (void)peers.acquire(fake, before, 0);  // makes the other one stale
  peers.release(before, 0);
  peers.trim(fake);
  EXPECT_EQ(fake.allocations(), mapped);
  fake.free(first);
  fake.free(second);
}

// A World in a static object may end an operation after later statics are destroyed.
constexpr int kSameAsBefore = 7, kOther = 8;
struct LastOfAll {
  ~LastOfAll() {
    if (!ends) return;
    for (std::size_t bytes = 16; bytes < 1024; bytes += 16)  // overwrites freed memory
      for (int i = 0; i < 20; ++i) std::memset(std::malloc(bytes), 0x5a, bytes);
    _exit(asked() == before ? kSameAsBefore : kOther);
  }
  std::uint64_t asked() const {
    return device_address(*fake_device(), memory, 64, fake_device()->residence(memory))
        .exported.bytes;
  }
  void* memory = nullptr;
  std::uint64_t before = 0;
  bool ends = false;
} last_of_all;

TEST(DevicePeers, WhatWasExportedOutlivesStaticObjects) {
  last_of_all.memory = fake_device()->alloc(0, 5000);
  last_of_all.before = last_of_all.asked();
  EXPECT_EXIT(
      {
        last_of_all.ends = true;
        std::exit(kOther);
      },
      ::testing::ExitedWithCode(kSameAsBefore), "");
  fake_device()->free(last_of_all.memory);
}

}  // namespace
}  // namespace weft
