// Memory of weft's own that travels between a GPU and other ranks: taken for one operation, kept
// for the next one. Pinned host memory is of weft::alloc, so that ranks of the host read it where
// it lies; RDMA NICs send from memory of a GPU and receive into it.
//
// Giving memory back to the device may wait for all work of the GPU, also for a stream that waits
// for this process. So give_back() never does it; trim() does, called where no stream waits
// (gpu/gates.h). Not installed. Thread-safe, but for one object.
#pragma once

#include <cstddef>
#include <memory>

#include "transport/gpu/device.h"

namespace weft {

// What is copied between a GPU and host memory at a time, while the slice before it is on its way
// through a transport: long enough for the bus, short enough to overlap.
inline constexpr std::size_t kStagedSlice = std::size_t{2} << 20;

class PooledMemory {
 public:
  static constexpr int kPinned = -1;  // in place of a GPU: pinned host memory
  PooledMemory() noexcept;
  // At least so many bytes. Throws Error when there is no memory, or the device refuses.
  PooledMemory(Device& device, int gpu, std::size_t bytes);
  ~PooledMemory();
  PooledMemory(PooledMemory&& other) noexcept;
  PooledMemory& operator=(PooledMemory&& other) noexcept;
  std::byte* get() const;
  std::size_t size() const;
  explicit operator bool() const { return block_ != nullptr; }
  void give_back() noexcept;
  // The GPU may still be at it, and nobody waits for that any more: it is never used again.
  void abandon() noexcept;

  // Gives back what is kept: all memory of GPUs, and pinned memory beyond kKept bytes.
  static constexpr std::size_t kKept = std::size_t{64} << 20;
  static void trim() noexcept;

 private:
  struct Block;
  struct Pool;
  static Pool& pool();
  std::unique_ptr<Block> block_;
};

}  // namespace weft
