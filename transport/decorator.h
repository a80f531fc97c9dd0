// A transport that forwards every call and offer to an inner transport. Derived classes override
// the calls that they observe or change. GPU memory is not forwarded, since the derived class may
// access the bytes of a message.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "transport/offers.h"

namespace weft {

class Decorator : public Transport, protected DeviceMemory {
 public:
  explicit Decorator(std::unique_ptr<Transport> inner) : inner_(std::move(inner)) {}

  void post(std::span<const Transfer> transfers) noexcept override { inner_->post(transfers); }
  std::size_t poll(std::span<Completion> out) noexcept override { return inner_->poll(out); }
  void cancel(std::uint32_t id_high) noexcept override { inner_->cancel(id_high); }
  void forget(std::uint64_t tag, std::uint64_t mask) noexcept override {
    inner_->forget(tag, mask);
  }
  Caps caps() const override { return inner_->caps(); }
  std::optional<std::uint64_t> moved_bytes() const noexcept override {
    return inner_->moved_bytes();
  }
  Status cause(Rank peer) const override { return inner_->cause(peer); }
  bool disputed(Rank peer, Head& theirs) const noexcept override {
    return inner_->disputed(peer, theirs);
  }
  Rank unexpected(Rank peer, std::uint64_t tag, std::uint64_t mask,
                  Head& theirs) noexcept override {
    return inner_->unexpected(peer, tag, mask, theirs);
  }
  void before_pause() noexcept override { inner_->before_pause(); }
  bool arm(std::vector<int>& fds) noexcept override { return inner_->arm(fds); }
  Boards* boards() noexcept override { return inner_->boards(); }
  Views* views() noexcept override { return inner_->views(); }
  Staging* staging() noexcept override { return inner_->staging(); }
  Recovery* recovery() noexcept override { return inner_->recovery(); }
  DeviceMemory* device_memory() noexcept override {
    return inner_->device_memory() ? this : nullptr;
  }

 protected:
  // A class that does not access bytes may return inner_->device_memory() from device_memory().
  bool reaches_gpu(void* data, std::size_t bytes) noexcept override {
    (void)data, (void)bytes;
    return false;
  }
  void end_buffer(std::uint64_t serial) noexcept override {
    if (DeviceMemory* const memory = inner_->device_memory()) memory->end_buffer(serial);
  }

  std::unique_ptr<Transport> inner_;
};

}  // namespace weft
