// Registered memory for transfers: the memory of the transfer itself, whose registrations are kept,
// or a bounce buffer of pinned host memory, if the HCA cannot access GPU memory directly
// (VerbsMemory: dma-buf or nvidia_peermem). The class does not depend on peers, queue pairs or
// messages. One thread uses an object at a time.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <vector>

#include "transport/gpu/streams.h"
#include "transport/transport.h"
#include "transport/verbs/device.h"
#include "transport/verbs/registration_cache.h"

namespace weft {

class VerbsBuffers final {
 public:
  using Cache = RegistrationCache<VerbsMemory>;
  using Use = Cache::Use;
  // Returns a bounce buffer to the pool.
  struct Give {
    VerbsBuffers* owner;
    void operator()(std::byte* data) const noexcept { owner->free_.push_back(data); }
  };
  using Stage = std::unique_ptr<std::byte, Give>;
  // Registered memory of one transfer. It must end before the VerbsBuffers.
  struct Reach {
    std::byte* data = nullptr;
    Stage stage;  // null: `data` is the transfer's own memory
    Cache::Lease lease;
    explicit operator bool() const { return data != nullptr; }
    const VerbsMemory& memory() const { return lease.memory(); }
  };

  explicit VerbsBuffers(const VerbsDevice& device);
  VerbsBuffers(const VerbsBuffers&) = delete;
  VerbsBuffers& operator=(const VerbsBuffers&) = delete;

  // Returns registered memory for the transfer's bytes. Throws Error if the kernel refuses.
  Reach reach(const Transfer& t, Use use);
  // Whether the device can access this GPU memory. Registers it, if it is in a DeviceRegion for
  // later transfers, too.
  bool reaches_gpu(void* data, std::size_t bytes) noexcept;
  void end_buffer(std::uint64_t serial) noexcept { cache_.end_buffer(serial); }

 private:
  Stage stage(std::size_t bytes);
  // Whether to try to register GPU memory. The kernel refuses permanently without a module, or
  // temporarily without memory or keys: after kRefusals in a row only one transfer in kEvery tries.
  bool asks() noexcept { return refusals_ < kRefusals || ++skipped_ % kEvery == 0; }

  struct Unpin {
    void operator()(std::byte* data) const noexcept;
  };
  struct Pinned {
    std::size_t bytes = 0;
    std::unique_ptr<std::byte, Unpin> memory;
  };
  static constexpr int kRefusals = 4;
  static constexpr unsigned kEvery = 256;
  int refusals_ = 0;
  unsigned skipped_ = 0;
  std::map<std::byte*, Pinned> made_;  // bounce buffers
  std::vector<std::byte*> free_;
  Cache cache_;
};

}  // namespace weft
