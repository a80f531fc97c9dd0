// Memory of GPUs in the verbs transport. An RDMA NIC reaches it itself where the kernel registers
// it (VerbsMemory: dma-buf, or nvidia_peermem); elsewhere it goes by way of pinned host memory,
// here.
//
// Used by one thread at a time.
#pragma once

#include <cstddef>
#include <map>
#include <memory>
#include <vector>

#include "transport/gpu/device.h"

namespace weft {

class VerbsGpu {
 public:
  VerbsGpu() = default;
  ~VerbsGpu();
  VerbsGpu(const VerbsGpu&) = delete;
  VerbsGpu& operator=(const VerbsGpu&) = delete;

  // Whether only a GPU may touch this.
  static bool owns(const void* data) noexcept {
    Device* const gpus = device();
    return gpus != nullptr && data != nullptr && gpus->residence(data).kind == MemoryKind::kDevice;
  }

  // Returns when the bytes are there; one side or both are a GPU's. Throws Error.
  void copy(void* to, const void* from, std::size_t bytes);

  // Host memory of weft::alloc, pinned, for a while. Must be given back before this ends.
  struct Give {
    VerbsGpu* owner = nullptr;
    void operator()(std::byte* data) const noexcept { owner->free_.push_back(data); }
  };
  using Stage = std::unique_ptr<std::byte, Give>;
  Stage stage(std::size_t bytes);  // throws Error

  bool staging = false;  // registering was refused once: it is not asked again

 private:
  struct Lane {
    Device::Stream stream = nullptr;
    Device::Event event = nullptr;
  };
  std::map<int, Lane> lanes_;               // by GPU
  std::map<std::byte*, std::size_t> made_;  // stages and their sizes
  std::vector<std::byte*> free_;
};

}  // namespace weft
