// Cache of mappings of other processes' device memory on this machine.
//
// A process can open an allocation only once, and opening is slow, so mappings belong to the
// process, not to a communicator. This process's own memory needs no mapping.
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

// A buffer's address as sent to other ranks (plain bytes).
struct DeviceAddress {
  std::uint64_t process = 0;  // unique number of the process
  // gpu: the owner's number of its GPU; -1: not device memory
  std::int32_t pid = 0, gpu = -1;
  // Id and start address of the allocation; address of the buffer.
  std::uint64_t id = 0, base = 0, at = 0;
  ExportedMemory exported;  // bytes 0: not exportable
};

// Describes this process's buffer [data, data + bytes). exported.bytes is 0 if not exportable.
DeviceAddress device_address(Device& device, const void* data, std::size_t bytes,
                             const Residence& residence) noexcept;

// Mapped memory of peers. Thread-safe.
class DevicePeers {
 public:
  // Maximum number of unused mappings that trim() keeps.
  static constexpr std::size_t kKept = 256;

  // Returns the buffer's address on GPU `gpu` of this process, valid until release() with the same
  // arguments. Mapping may wait for all streams of a GPU. Therefore the function returns nullptr if
  // the buffer is not mapped and a stream waits for weft; open_wanted() maps it later. now: maps it
  // in any case. Throws Error if the GPU cannot access the buffer.
  void* acquire(Device& device, const DeviceAddress& address, int gpu, bool now = false);
  void release(const DeviceAddress& address, int gpu) noexcept;
  // Closes mappings of memory that its owner has freed, and the oldest unused mappings beyond
  // kKept. Closing may wait for all work of a GPU, so it must not be called while such work waits
  // for weft.
  void trim(Device& device) noexcept;
  // Maps the buffers that acquire() could not map. Must be called when no stream waits
  // (gpu/gates.h), after trim().
  void open_wanted(Device& device) noexcept;
  std::size_t size() const;

 private:
  struct Mapping {
    void* opened = nullptr;
    std::uint64_t base = 0, bytes = 0, used = 0;
    int users = 0;
    bool stale = false;
  };
  using Key = std::tuple<std::uint64_t, std::uint64_t, int>;  // process, id, this process's GPU
  void* use(Mapping& m, const DeviceAddress& address) WEFT_REQUIRES(mutex_);
  void mark_stale(const Key& key, const DeviceAddress& address) WEFT_REQUIRES(mutex_);
  void open(Device& device, const Key& key, const DeviceAddress& address) WEFT_REQUIRES(mutex_);

  mutable Mutex mutex_;
  std::map<Key, DeviceAddress> wanted_ WEFT_GUARDED_BY(mutex_);
  std::atomic<bool> any_wanted_{false};
  std::map<Key, std::string> refused_ WEFT_GUARDED_BY(mutex_);  // failed mappings: CUDA's error
  std::map<Key, Mapping> mappings_ WEFT_GUARDED_BY(mutex_);
  std::uint64_t clock_ WEFT_GUARDED_BY(mutex_) = 0;
  bool any_stale_ WEFT_GUARDED_BY(mutex_) = false;
};

DevicePeers& device_peers();

}  // namespace weft
