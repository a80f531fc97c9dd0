// Device memory of other processes of this machine, mapped here once and kept.
//
// Opening memory is dear and can be done once per process only, so this belongs to the process, not
// to a communicator. Memory of this very process is used as it is.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <tuple>

#include "topo/base/mutex.h"
#include "transport/gpu/device.h"

namespace weft {

// What a rank tells the others of a buffer, so that they can reach it. Plain bytes.
struct DeviceAddress {
  std::uint64_t process = 0;               // a number that no other process has
  std::int32_t pid = 0, gpu = -1;          // gpu: as the owner counts them; -1: not device memory
  std::uint64_t id = 0, base = 0, at = 0;  // the allocation, where it begins, the buffer itself
  ExportedMemory exported;                 // bytes 0: it cannot be exported
};

// Of a buffer of this process, [data, data + bytes). Never throws: what cannot be shared says so.
DeviceAddress device_address(Device& device, const void* data, std::size_t bytes,
                             const Residence& residence) noexcept;

// Mapped memory of peers. Thread-safe.
class DevicePeers {
 public:
  // Mappings kept though nobody uses them.
  static constexpr std::size_t kKept = 256;

  // The buffer as GPU `gpu` of this process reaches it, until release() of the same. Throws Error
  // when it does not.
  void* acquire(Device& device, const DeviceAddress& address, int gpu);
  void release(const DeviceAddress& address, int gpu) noexcept;
  // Closes mappings of memory that its owner has replaced, and the oldest of more than kKept. A GPU
  // may wait for all its work to end when memory is closed: not while other work waits for weft.
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
