// Device memory of weft's own for messages: ranks of this host may read it, RDMA cards may reach
// it. What is sent lies there, while its stream goes on, until the receiver has it.
//
// It is kept as long as the process lives: peers have it mapped, cards have it registered, and
// memory that is mapped elsewhere must not be freed (cudaIpcOpenMemHandle). Not installed.
// Thread-safe, but for one object.
#pragma once

#include <cstddef>
#include <utility>

#include "transport/device.h"
#include "transport/device_peers.h"

namespace weft {

class DeviceRoom {
 public:
  // Of a GPU, for all communicators of the process; taken as it is needed, so much at first.
  static constexpr std::size_t kMostBytes = std::size_t{256} << 20, kLeastBytes = 32 << 20;

  DeviceRoom() = default;
  // So many bytes; empty where nothing is free and kMostBytes would be passed, or the GPU has none
  // left.
  DeviceRoom(Device& device, int gpu, std::size_t bytes);
  ~DeviceRoom() { give_back(); }
  DeviceRoom(DeviceRoom&& other) noexcept { swap(other); }
  DeviceRoom& operator=(DeviceRoom&& other) noexcept {
    swap(other);
    return *this;
  }
  explicit operator bool() const { return chunk_ != nullptr; }
  std::byte* get() const;
  std::size_t size() const { return bytes_; }
  DeviceAddress address() const;
  void give_back() noexcept;
  // The GPU or a card may still be at it, and nobody waits for that any more: it is never used
  // again.
  void abandon() noexcept { chunk_ = nullptr; }

 private:
  struct Chunk;
  struct Pool;
  static Pool& pool();
  void swap(DeviceRoom& other) noexcept {
    std::swap(chunk_, other.chunk_);
    std::swap(at_, other.at_);
    std::swap(bytes_, other.bytes_);
  }
  bool fit_in(Chunk& chunk);

  Chunk* chunk_ = nullptr;
  std::size_t at_ = 0, bytes_ = 0;
};

}  // namespace weft
