// Opens device memory of peers, keeps the mappings, and closes the stale ones. Knows nothing of the
// calls that read through them.
#include "transport/gpu/device_peers.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <random>

#include "topo/base/log.h"
#include "topo/base/status.h"

namespace weft {
namespace {

// pids come again in other containers of the same machine. A forked child is another process.
std::uint64_t process_number() {
  static Mutex mutex;
  static std::uint64_t number WEFT_GUARDED_BY(mutex) = 0;
  static pid_t of WEFT_GUARDED_BY(mutex) = 0;
  const MutexLock lock(mutex);
  if (of != getpid()) {
    std::random_device dice;
    number = static_cast<std::uint64_t>(dice()) << 32 | dice();
    of = getpid();
  }
  return number;
}

}  // namespace

DeviceAddress device_address(Device& device, const void* data, std::size_t bytes,
                             const Residence& r) noexcept {
  DeviceAddress a;
  a.process = process_number();
  a.pid = getpid();
  if (r.kind != MemoryKind::kDevice) return a;
  a.gpu = r.gpu;
  a.id = r.id;
  a.base = r.base;
  a.at = reinterpret_cast<std::uintptr_t>(data);
  // A range of several allocations side by side is not one that can be exported.
  if (a.at < a.base || a.at + bytes > a.base + r.bytes) return a;
  // An allocation's number never comes again, so what was exported once stays right.
  static Mutex mutex;
  // Outlives every static.
  static auto* const known WEFT_PT_GUARDED_BY(mutex) = new std::map<std::uint64_t, ExportedMemory>;
  const MutexLock lock(mutex);
  if (known->size() > DevicePeers::kKept) known->clear();
  const auto [entry, missing] = known->try_emplace(r.id);
  if (missing) try {
      entry->second = device.export_memory(data);
    } catch (const Error& e) {
      log().debug("weft: {}", e.what());
    }
  a.exported = entry->second;
  return a;
}

void* DevicePeers::acquire(Device& device, const DeviceAddress& address, int gpu) {
  if (address.process == process_number()) {
    if (!device.reaches(gpu, address.gpu))
      throw Error(fmt::format("{} does not reach the memory of {}", device.describe(gpu),
                              device.describe(address.gpu)));
    return reinterpret_cast<void*>(address.at);  // NOLINT
  }
  if (address.exported.bytes == 0)
    throw Error(
        fmt::format("memory of process {} has no handle (cudaMallocAsync, cuMemCreate, or "
                    "several allocations side by side)",
                    address.pid));
  const MutexLock lock(mutex_);
  Mapping& m = mappings_[{address.process, address.id, gpu}];
  if (!m.opened) {
    m.base = address.base;
    m.bytes = address.exported.bytes;
    // What was there before is gone. As long as that is mapped CUDA may refuse what is there now
    // (cudaErrorAlreadyMapped), so it is closed also when this fails: the next call gets further.
    for (auto& [key, other] : mappings_)
      if (&other != &m && std::get<0>(key) == address.process && other.base < m.base + m.bytes &&
          m.base < other.base + other.bytes && std::get<1>(key) != address.id)
        any_stale_ = other.stale = true;
    try {
      m.opened = device.open(address.exported, address.pid, gpu);
    } catch (...) {
      mappings_.erase({address.process, address.id, gpu});
      throw;
    }
  }
  ++m.users;
  m.used = ++clock_;
  return static_cast<std::byte*>(m.opened) + (address.at - address.base);
}

void DevicePeers::release(const DeviceAddress& address, int gpu) noexcept {
  if (address.process == process_number()) return;
  const MutexLock lock(mutex_);
  const auto found = mappings_.find({address.process, address.id, gpu});
  if (found != mappings_.end()) --found->second.users;
}

void DevicePeers::trim(Device& device) noexcept {
  const MutexLock lock(mutex_);
  if (!any_stale_ && mappings_.size() <= kKept) return;
  any_stale_ = false;
  for (auto at = mappings_.begin(); at != mappings_.end();) {
    Mapping& m = at->second;
    if (m.stale && m.users > 0) any_stale_ = true;
    if (!m.stale || m.users > 0) {
      ++at;
      continue;
    }
    device.close(m.opened);
    at = mappings_.erase(at);
  }
  while (mappings_.size() > kKept) {
    auto oldest = mappings_.end();
    for (auto at = mappings_.begin(); at != mappings_.end(); ++at)
      if (at->second.users == 0 &&
          (oldest == mappings_.end() || at->second.used < oldest->second.used))
        oldest = at;
    if (oldest == mappings_.end()) return;
    device.close(oldest->second.opened);
    mappings_.erase(oldest);
  }
}

std::size_t DevicePeers::size() const {
  const MutexLock lock(mutex_);
  return mappings_.size();
}

DevicePeers& device_peers() {
  static DevicePeers* const peers = new DevicePeers;  // never destroyed, as the device
  return *peers;
}

}  // namespace weft
