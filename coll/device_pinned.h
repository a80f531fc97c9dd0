// Pinned host memory for what travels between a GPU and other hosts: taken for one operation, kept
// for the next one. All of it is of weft::alloc, so that ranks of the host read it where it lies.
//
// Unpinning may wait for all work of the GPU, also for a stream that waits for this process. So
// who gives memory back never does it; trim() does, called where no stream waits (device_gates.h).
// Not installed. Thread-safe, but for one object.
#pragma once

#include <cstddef>
#include <utility>

#include "transport/device.h"

namespace weft {

// What is copied between a GPU and host memory at a time, while the slice before it is on its way
// through a transport: long enough for the bus, short enough to overlap.
inline constexpr std::size_t kStagedSlice = std::size_t{2} << 20;

class Pinned {
 public:
  Pinned() = default;
  // At least so many bytes. Throws Error when there is no memory, or the device refuses.
  Pinned(Device& device, std::size_t bytes);
  ~Pinned() { give_back(); }
  Pinned(Pinned&& other) noexcept { swap(other); }
  Pinned& operator=(Pinned&& other) noexcept {
    swap(other);
    return *this;
  }
  std::byte* get() const { return memory_; }
  std::size_t size() const { return bytes_; }
  explicit operator bool() const { return memory_ != nullptr; }
  void give_back() noexcept;
  // The GPU may still be at it, and nobody waits for that any more: it is never used again.
  void abandon() noexcept {
    memory_ = nullptr;
    bytes_ = 0;
  }

  // Unpins what is kept beyond kKept bytes.
  static constexpr std::size_t kKept = std::size_t{64} << 20;
  static void trim(Device& device) noexcept;

 private:
  void swap(Pinned& other) noexcept {
    std::swap(memory_, other.memory_);
    std::swap(bytes_, other.bytes_);
  }

  std::byte* memory_ = nullptr;
  std::size_t bytes_ = 0;
};

}  // namespace weft
