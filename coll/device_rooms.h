// Device memory of weft's own for messages: ranks of this host may read it, RDMA cards may reach
// it. What is sent lies there, while its stream goes on, until the receiver has it.
//
// Kept from one message to the next, as peers have it mapped and cards have it registered. Not
// installed. Thread-safe, but for one object.
#pragma once

#include <cstddef>
#include <memory>

#include "transport/device.h"
#include "transport/device_peers.h"
#include "transport/device_region.h"

namespace weft {

class DeviceRoom {
 public:
  // Of a GPU, for all communicators of the process.
  static constexpr std::size_t kMostBytes = std::size_t{256} << 20;

  DeviceRoom() = default;
  // At least so many bytes; empty where kMostBytes would be passed, or the GPU has none left.
  DeviceRoom(Device& device, int gpu, std::size_t bytes);
  ~DeviceRoom() { give_back(); }
  DeviceRoom(DeviceRoom&&) noexcept = default;
  DeviceRoom& operator=(DeviceRoom&& other) noexcept {
    give_back();
    block_ = std::move(other.block_);
    return *this;
  }
  explicit operator bool() const { return block_ != nullptr; }
  std::byte* get() const { return block_->region.data(); }
  std::size_t size() const { return block_->region.size(); }
  const DeviceAddress& address() const { return block_->address; }
  void give_back() noexcept;
  // The GPU may still be at it, and nobody waits for that any more: it is never used again.
  void abandon() noexcept { (void)block_.release(); }

  // Frees what nobody uses: all of it, or only where a larger one was wanted. Not while a stream
  // waits (device_gates.h): that may wait for it.
  static void trim(bool all) noexcept;

 private:
  struct Block {
    DeviceRegion region;
    int gpu;
    DeviceAddress address;
  };
  struct Pool;
  static Pool& pool();

  std::unique_ptr<Block> block_;
};

}  // namespace weft
