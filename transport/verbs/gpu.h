// GPU memory in the verbs transport. The HCA accesses GPU memory directly if the kernel registers
// it (VerbsMemory: dma-buf or nvidia_peermem); otherwise this class copies the bytes through bounce
// buffers of pinned host memory. One thread uses an object at a time.
#pragma once

#include <cstddef>
#include <map>
#include <memory>
#include <vector>

#include "transport/gpu/streams.h"

namespace weft {

class VerbsGpu {
 public:
  VerbsGpu() = default;
  ~VerbsGpu();
  VerbsGpu(const VerbsGpu&) = delete;
  VerbsGpu& operator=(const VerbsGpu&) = delete;

  // True if `data` is memory that the CPU must not access.
  static bool owns(const void* data) noexcept {
    Device* const gpus = device();
    return gpus != nullptr && data != nullptr && gpus->residence(data).kind == MemoryKind::kDevice;
  }

  // Copies bytes from or to GPU memory, and returns when the copy is done. Throws Error.
  static void copy(void* to, const void* from, std::size_t bytes) { copy_now(to, from, bytes); }

  // Returns the bounce buffer of a Stage to the pool.
  struct Give {
    VerbsGpu* owner = nullptr;
    void operator()(std::byte* data) const noexcept { owner->free_.push_back(data); }
  };
  using Stage = std::unique_ptr<std::byte, Give>;
  // Lends a bounce buffer: pinned host memory of weft::alloc. The Stage must end before this
  // object. Throws Error.
  Stage stage(std::size_t bytes);

  // Whether to try to register GPU memory. The kernel refuses permanently without a module, or
  // temporarily without memory or keys: after kRefusals in a row only one transfer in kEvery tries.
  bool asks() noexcept { return refusals_ < kRefusals || ++skipped_ % kEvery == 0; }
  void registered() noexcept { refusals_ = 0; }
  int refused() noexcept { return ++refusals_; }

 private:
  static constexpr int kRefusals = 4;
  static constexpr unsigned kEvery = 256;
  int refusals_ = 0;
  unsigned skipped_ = 0;
  std::map<std::byte*, std::size_t> made_;  // bounce buffers and their sizes
  std::vector<std::byte*> free_;
};

}  // namespace weft
