// The staging pool: weft's bounce buffers between a GPU and other ranks, taken for one task
// and kept for the next. Pinned host memory comes from weft::alloc, so that ranks of the host read
// it in place; RDMA NICs send from GPU memory and receive into it.
//
// A device that takes memory back may wait for all work of the GPU, also for a stream that waits
// for this process. So give_back() returns memory only to the pool; trim(), called where no stream
// waits (gpu/gates.h), returns it to the device. One thread uses an object
// at a time.
#pragma once

#include <atomic>
#include <chrono>
#include <cstddef>
#include <memory>

#include "transport/gpu/device.h"

namespace weft {

// The bytes of one copy between GPU and host memory, while a transport moves the slice before it:
// long enough for the bus, short enough to overlap.
inline constexpr std::size_t kStagedSlice = std::size_t{2} << 20;

class PooledMemory {
 public:
  static constexpr int kPinned = -1;  // in place of a GPU: pinned host memory
  PooledMemory() noexcept;
  // Takes at least `bytes`. What the pool lacks comes from the device; where `waiting` is given,
  // after settle(*waiting). Throws Error when memory runs out or the device refuses.
  PooledMemory(Device& device, int gpu, std::size_t bytes,
               const std::atomic<std::size_t>* waiting = nullptr);
  ~PooledMemory();
  PooledMemory(PooledMemory&& other) noexcept;
  PooledMemory& operator=(PooledMemory&& other) noexcept;
  // Whether the pool has a block for so many bytes now; another thread may take it.
  static bool pooled(int gpu, std::size_t bytes) noexcept;
  std::byte* get() const;
  std::size_t size() const;
  explicit operator bool() const { return block_ != nullptr; }
  void give_back() noexcept;
  // Keeps the memory out of use for ever, as the GPU may still access it.
  void abandon() noexcept;

  // Keeps GPU memory in the pool as long as the process lives, for peers may map it, and CUDA does
  // not say what becomes of memory that is freed while it is mapped.
  void share() noexcept;
  static std::size_t shared_bytes() noexcept;  // of all memory for which share() was called

  // Returns pooled memory to the device: all GPU memory, and pinned memory beyond kKept bytes that
  // nobody has used for kIdle: to pin it again for each long message would take as long as to send
  // the message many times.
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
