// The staging pool: bounce buffers between a GPU and other ranks, which tasks reuse. Pinned host
// memory comes from weft::alloc, so that ranks of the host can read it in place; RDMA NICs send
// from pooled GPU memory and receive into it.
//
// Freeing device memory may wait for all work of the GPU, even for a stream that waits for this
// process. Therefore give_back() returns memory only to the pool; trim(), called when no stream
// waits (gpu/gates.h), returns it to the device. Objects are not thread-safe.
#pragma once

#include <atomic>
#include <chrono>
#include <cstddef>
#include <memory>

#include "transport/gpu/device.h"

namespace weft {

// Size of one copy between GPU and host memory, during which a transport moves the previous slice:
// long enough to use the bandwidth of the bus, short enough to overlap.
inline constexpr std::size_t kStagedSlice = std::size_t{2} << 20;

class PooledMemory {
 public:
  static constexpr int kPinned = -1;  // instead of a GPU: pinned host memory
  PooledMemory() noexcept;
  // Takes at least `bytes` from the pool or, if the pool has none, from the device, after
  // settle(*waiting) if `waiting` is given. Throws Error if the allocation fails.
  PooledMemory(Device& device, int gpu, std::size_t bytes,
               const std::atomic<std::size_t>* waiting = nullptr);
  ~PooledMemory();
  PooledMemory(PooledMemory&& other) noexcept;
  PooledMemory& operator=(PooledMemory&& other) noexcept;
  // Returns whether the pool contains a block for `bytes` now; another thread may take it.
  static bool pooled(int gpu, std::size_t bytes) noexcept;
  std::byte* get() const;
  std::size_t size() const;
  explicit operator bool() const { return block_ != nullptr; }
  void give_back() noexcept;
  // Never reuses or frees the memory, since the GPU may still access it.
  void abandon() noexcept;

  // Keeps GPU memory in the pool for the lifetime of the process, since peers may have mapped it,
  // and CUDA does not define the behavior of mappings of freed memory.
  void share() noexcept;
  static std::size_t shared_bytes() noexcept;  // total bytes of memory for which share() was called

  // Returns pooled memory to the device: all GPU memory that is not shared, and pinned memory
  // beyond kKept bytes that was unused for kIdle. The limits avoid pinning memory for each long
  // message, which would take many times as long as sending the message.
  // times as long as sending the message.
  static constexpr std::size_t kKept = std::size_t{64} << 20;
  static constexpr std::chrono::seconds kIdle{10};
  static void trim() noexcept;

 private:
  struct Block;
  struct Pool;
  static std::size_t rounded(std::size_t bytes) noexcept;
  static Pool& pool();
  std::unique_ptr<Block> block_;
};

}  // namespace weft
