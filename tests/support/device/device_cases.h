// Conformance of a Device: residence of memory, stream order, words, errors.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <numeric>
#include <thread>

#include "support/device/device_memory.h"
#include "topo/base/status.h"
#include "transport/memory/memory.h"

namespace weft::testing {

inline std::vector<std::byte> counting(std::size_t n) {
  std::vector<std::byte> bytes(n);
  for (std::size_t i = 0; i < n; ++i) bytes[i] = static_cast<std::byte>(i * 7);
  return bytes;
}

inline void run_device_cases(Device& device) {
  TestStream stream(device), other(device);

  // Residence of host, shared and device memory.
  int on_stack = 0;
  EXPECT_EQ(device.residence(&on_stack).kind, MemoryKind::kHost);
  EXPECT_EQ(device.residence(nullptr).kind, MemoryKind::kHost);
  {
    auto shared = alloc_array<char>(100);
    EXPECT_EQ(device.residence(shared.get()).kind, MemoryKind::kHost);
  }
  std::uint64_t first_id = 0;
  {
    DeviceBuffer buffer(stream, 5000, 3);
    const Residence r = device.residence(buffer.data() + 17);
    EXPECT_EQ(r.kind, MemoryKind::kDevice);
    EXPECT_EQ(r.gpu, 0);
    EXPECT_EQ(r.base, reinterpret_cast<std::uintptr_t>(buffer.data() - 3));
    EXPECT_GE(r.bytes, 5000u);
    first_id = r.id;
  }
  {
    DeviceBuffer buffer(stream, 5000);
    EXPECT_NE(device.residence(buffer.data()).id, first_id) << "an allocation's number came again";
  }

  // Copies between all kinds of memory run in stream order.
  {
    DeviceBuffer a(stream, 100000, 5), b(stream, 100000, 2);
    const auto sent = counting(100000);
    std::vector<std::byte> back(100000);
    device.copy(a.data(), sent.data(), sent.size(), 0, stream.get());
    device.copy(b.data(), a.data(), sent.size(), 0, stream.get());
    device.copy(back.data(), b.data(), sent.size(), 0, stream.get());
    device.copy(back.data(), b.data(), 0, 0, stream.get());
    stream.wait();
    EXPECT_EQ(back, sent);
  }

  // Words order a stream against the host, and streams against each other.
  std::atomic<std::uint32_t>* words = device.words(2);
  EXPECT_EQ(words[0].load() + words[1].load(), 0u);
  {
    DeviceBuffer a(stream, 64);
    const auto sent = counting(64);
    // CUDA may synchronize on a copy of unpinned memory, but this thread releases the stream later.
    auto pinned = alloc_array<std::byte>(64);
    std::ranges::copy(sent, pinned.get());
    device.pin(pinned.get(), 64);
    Device::Event passed = device.make_event(0);
    EXPECT_TRUE(device.reached(passed));
    device.wait_word(stream.get(), &words[0], 1);
    device.copy(a.data(), pinned.get(), sent.size(), 0, stream.get());
    device.write_word(stream.get(), &words[1], 7);
    device.record(passed, stream.get());
    other.wait();  // another stream is not blocked
    EXPECT_FALSE(device.reached(passed));
    EXPECT_EQ(words[1].load(), 0u);
    words[0].store(1);
    while (words[1].load() != 7) std::this_thread::yield();
    stream.wait();
    EXPECT_TRUE(device.reached(passed));
    EXPECT_EQ(a.get(), sent);
    device.free_event(passed);
    device.unpin(pinned.get());
  }
  device.free_words(words);

  EXPECT_EQ(device.gpu_of(stream.get()), 0);
  EXPECT_FALSE(device.capturing(stream.get()));
  EXPECT_TRUE(device.reaches(0, 0));
  EXPECT_NE(device.describe(0).find("GPU 0"), std::string::npos);
  EXPECT_FALSE(device.identity(0).empty());

  // Host memory cannot be exported.
  EXPECT_THROW((void)device.export_memory(&on_stack), Error);
}

// Device calls that must not block while a stream waits for a word.
inline void run_waiting_cases(Device& device) {
  TestStream waits(device), other(device);
  DeviceBuffer buffer(other, 4096);
  auto host = alloc_array<std::byte>(4096);
  std::atomic<std::uint32_t>* word = device.words(1);
  device.wait_word(waits.get(), word, 1);
  std::atomic<bool> over = false;
  std::thread gives_up([&] {  // ends a call that blocks, so that the test names it
    for (int ms = 0; ms < 20000 && !over; ++ms)
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    word->store(1);
  });
  const auto returned = [&](const char* call) {
    EXPECT_EQ(word->load(), 0u) << call << " waits for a stream that waits";
  };
  auto* const more = device.words(1024);
  returned("words");
  device.pin(host.get(), 4096);
  returned("pin");
  void* const memory = device.alloc(0, std::size_t{64} << 20);
  returned("alloc");
  (void)device.export_memory(memory);
  returned("export_memory");
  Device::Event event = device.make_event(0);
  returned("make_event");
  Device::Stream stream = device.make_stream(0);
  returned("make_stream");
  device.copy(host.get(), buffer.data(), 4096, 0, stream);
  device.record(event, stream);
  while (!device.reached(event)) std::this_thread::yield();
  returned("copy");
  EXPECT_EQ(host[0], DeviceBuffer::kPoison);
  over = true;
  gives_up.join();
  waits.wait();
  device.unpin(host.get());
  device.free(memory);
  device.free_event(event);
  device.free_stream(stream);
  device.free_words(more);
  device.free_words(word);
}

}  // namespace weft::testing
