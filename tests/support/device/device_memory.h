// Streams and device memory for tests, on the fake device and on a GPU.
#pragma once

#include <gtest/gtest.h>

#include <cstring>
#include <thread>
#include <vector>

#include "transport/gpu/device.h"
#include "transport/gpu/gates.h"

namespace weft::testing {

// A stream that its destructor synchronizes.
class TestStream {
 public:
  explicit TestStream(Device& device, int gpu = 0)
      : device_(device),
        gpu_(gpu),
        stream_(device.make_stream(gpu)),
        event_(device.make_event(gpu)) {}
  ~TestStream() {
    wait();
    device_.free_event(event_);
    device_.free_stream(stream_);
  }
  TestStream(const TestStream&) = delete;
  TestStream& operator=(const TestStream&) = delete;
  void wait() {
    device_.record(event_, stream_);
    for (Backoff patience; !device_.reached(event_);) patience.pause();
  }
  Device::Stream get() const { return stream_; }
  Device& device() const { return device_; }
  int gpu() const { return gpu_; }

 private:
  Device& device_;
  int gpu_;
  Device::Stream stream_;
  Device::Event event_;
};

// `bytes` of device memory at 256-byte alignment plus `shift`, with poison before and after.
class DeviceBuffer {
 public:
  static constexpr std::byte kPoison{0xA5};
  static constexpr std::size_t kBehind = 64;

  DeviceBuffer(TestStream& stream, std::size_t bytes, std::size_t shift = 0)
      : stream_(stream),
        bytes_(bytes),
        shift_(shift),
        whole_(bytes + shift + kBehind),
        base_(static_cast<std::byte*>(stream.device().alloc(stream.gpu(), whole_))) {
    const std::vector<std::byte> poison(whole_, kPoison);
    stream_.device().copy(base_, poison.data(), whole_, stream_.gpu(), stream_.get());
    stream_.wait();
  }
  ~DeviceBuffer() {
    stream_.wait();
    stream_.device().free(base_);
  }
  DeviceBuffer(const DeviceBuffer&) = delete;
  DeviceBuffer& operator=(const DeviceBuffer&) = delete;

  std::byte* data() const { return base_ + shift_; }
  std::size_t size() const { return bytes_; }
  void put(const std::vector<std::byte>& bytes, std::size_t at = 0) {
    stream_.device().copy(data() + at, bytes.data(), bytes.size(), stream_.gpu(), stream_.get());
    stream_.wait();
  }
  std::vector<std::byte> get() const {
    std::vector<std::byte> bytes(bytes_);
    stream_.device().copy(bytes.data(), data(), bytes_, stream_.gpu(), stream_.get());
    stream_.wait();
    return bytes;
  }
  bool intact_around() const {
    std::vector<std::byte> around(shift_ + kBehind);
    const auto read = [&](std::size_t to, std::size_t from, std::size_t bytes) {
      stream_.device().copy(around.data() + to, base_ + from, bytes, stream_.gpu(), stream_.get());
    };
    read(0, 0, shift_);
    read(shift_, shift_ + bytes_, kBehind);
    stream_.wait();
    return around == std::vector<std::byte>(around.size(), kPoison);
  }

 private:
  TestStream& stream_;
  std::size_t bytes_, shift_, whole_;
  std::byte* base_;
};

}  // namespace weft::testing
