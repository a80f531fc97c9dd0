// Mapped device memory of other processes.
#include <gtest/gtest.h>

#include "topo/status.h"
#include "transport/device_fake.h"
#include "transport/device_peers.h"

namespace weft {
namespace {

// CUDA may refuse memory that lies where other memory of its owner is still mapped here.
TEST(DevicePeers, WhatWasReplacedIsClosedAlsoWhenTheNewCannotBeOpened) {
  FakeDevice& fake = *fake_device();
  void* const first = fake.alloc(0, 5000);
  void* const second = fake.alloc(0, 5000);
  DeviceAddress before = device_address(fake, first, 5000, fake.residence(first));
  DeviceAddress after = device_address(fake, second, 5000, fake.residence(second));
  before.process = after.process = 1;  // as if of another one, which
  after.base = before.base;            // freed the first and got the second in its place
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
  (void)peers.acquire(fake, before, 0);  // so that the other is stale
  peers.release(before, 0);
  peers.trim(fake);
  EXPECT_EQ(fake.allocations(), mapped);
  fake.free(first);
  fake.free(second);
}

}  // namespace
}  // namespace weft
