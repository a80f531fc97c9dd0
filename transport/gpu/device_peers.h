// Device memory of other processes of this machine, mapped here once and kept.
//
// A process can open an allocation only once, and slowly, so the mappings belong to the process,
// not to a communicator. Memory of this process itself needs no mapping.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
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
  // arguments; nullptr where that is not mapped yet and cannot be now: a GPU may let the call that
  // maps memory wait for all its streams, and one waits for weft. open_wanted() maps it then.
  // now: maps it all the same. Throws Error when the GPU cannot reach the buffer.
  void* acquire(Device& device, const DeviceAddress& address, int gpu, bool now = false);
  void release(const DeviceAddress& address, int gpu) noexcept;
  // Closes mappings of memory that its owner has replaced, and the oldest unused mappings beyond
  // kKept. Closing may wait for all work of a GPU: no work on it may wait for weft meanwhile.
  void trim(Device& device) noexcept;
  // Maps what acquire() could not. Callers do it where no stream waits (gpu/gates.h), after trim().
  void open_wanted(Device& device) noexcept;
  std::size_t size() const;

 private:
  struct Mapping {
    void* opened = nullptr;
    std::uint64_t base = 0, bytes = 0, used = 0;
    int users = 0;
    bool stale = false;
  };
  using Key = std::tuple<std::uint64_t, std::uint64_t, int>;  // process, id, gpu here
  void* use(Mapping& m, const DeviceAddress& address) WEFT_REQUIRES(mutex_);
  void mark_stale(const Key& key, const DeviceAddress& address) WEFT_REQUIRES(mutex_);
  void open(Device& device, const Key& key, const DeviceAddress& address) WEFT_REQUIRES(mutex_);

  mutable Mutex mutex_;
  std::map<Key, DeviceAddress> wanted_ WEFT_GUARDED_BY(mutex_);
  std::atomic<bool> any_wanted_{false};
  std::map<Key, std::string> refused_ WEFT_GUARDED_BY(mutex_);  // wanted ones: what CUDA said
  std::map<Key, Mapping> mappings_ WEFT_GUARDED_BY(mutex_);
  std::uint64_t clock_ WEFT_GUARDED_BY(mutex_) = 0;
  bool any_stale_ WEFT_GUARDED_BY(mutex_) = false;
};

DevicePeers& device_peers();

}  // namespace weft
