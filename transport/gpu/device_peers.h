// Device memory of other processes of this machine, mapped here once and kept.
//
// A process can open an allocation only once, and slowly, so the mappings belong to the process,
// not to a communicator. Memory of this process itself needs no mapping.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <tuple>

#include "topo/base/mutex.h"
#include "transport/gpu/device.h"

namespace weft {

// The address of a buffer that a rank sends to other ranks, as plain bytes.
struct DeviceAddress {
  std::uint64_t process = 0;               // a number that no other process has
  std::int32_t pid = 0, gpu = -1;          // gpu: the owner's number; -1: not device memory
  std::uint64_t id = 0, base = 0, at = 0;  // the allocation, where it begins, the buffer itself
  ExportedMemory exported;                 // bytes 0: it cannot be exported
};

// Describes this process's buffer [data, data + bytes). exported.bytes is 0 if it is unshareable.
DeviceAddress device_address(Device& device, const void* data, std::size_t bytes,
                             const Residence& residence) noexcept;

// Mapped memory of peers. Thread-safe.
class DevicePeers {
 public:
  // The most unused mappings that trim() keeps.
  static constexpr std::size_t kKept = 256;

  // Returns where GPU `gpu` of this process finds the buffer, valid until release() with the same
  // arguments. Throws Error when the GPU cannot reach it.
  void* acquire(Device& device, const DeviceAddress& address, int gpu);
  void release(const DeviceAddress& address, int gpu) noexcept;
  // Closes mappings of memory that its owner has replaced, and the oldest unused mappings beyond
  // kKept. Closing may wait for all work of a GPU: no work on it may wait for weft meanwhile.
  void trim(Device& device) noexcept;
  std::size_t size() const;

 private:
  struct Mapping {
    void* opened = nullptr;
    std::uint64_t base = 0, bytes = 0, used = 0;
    int users = 0;
    bool stale = false;
  };
  using Key = std::tuple<std::uint64_t, std::uint64_t, int>;  // process, id, gpu here
  mutable Mutex mutex_;
  std::map<Key, Mapping> mappings_ WEFT_GUARDED_BY(mutex_);
  std::uint64_t clock_ WEFT_GUARDED_BY(mutex_) = 0;
  bool any_stale_ WEFT_GUARDED_BY(mutex_) = false;
};

DevicePeers& device_peers();

}  // namespace weft
