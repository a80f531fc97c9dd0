// Opens device memory of peers, caches the mappings, and closes stale ones.
#include "transport/gpu/device_peers.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <random>
#include <utility>

#include "topo/base/log.h"
#include "topo/base/status.h"
#include "transport/gpu/gates.h"

namespace weft {
namespace {

// Returns a random number, since containers of a machine may use equal pids; new in a forked child.
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
  // A range over several adjacent allocations cannot be exported.
  if (a.at < a.base || a.at + bytes > a.base + r.bytes) return a;
  // Allocation ids are never reused, so exported handles can be cached.
  static Mutex mutex;
  // Never destroyed: used by destructors of statics.
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

void* DevicePeers::acquire(Device& device, const DeviceAddress& address, int gpu, bool now) {
  if (address.process == process_number()) {
    if (!device.reaches(gpu, address.gpu))
      throw Error(fmt::format("{} cannot access the memory of {}", device.describe(gpu),
                              device.describe(address.gpu)));
    return reinterpret_cast<void*>(address.at);  // NOLINT
  }
  if (address.exported.bytes == 0)
    throw Error(
        fmt::format("memory of process {} has no handle (cudaMallocAsync, cuMemCreate, or "
                    "several allocations side by side)",
                    address.pid));
  const Key key{address.process, address.id, gpu};
  {
    const MutexLock lock(mutex_);
    if (const auto known = mappings_.find(key); known != mappings_.end())
      return use(known->second, address);
    if (const auto no = refused_.find(key); no != refused_.end()) {
      const std::string why = no->second;
      refused_.erase(no);  // the next call retries
      throw Error(why);
    }
    if (now) {
      open(device, key, address);
      return use(mappings_[key], address);
    }
    mark_stale(key, address);
    wanted_[key] = address;
    any_wanted_ = true;
  }
  if (!unless_streams_wait([&] {
        trim(device);
        open_wanted(device);
      }))
    return nullptr;
  const MutexLock lock(mutex_);
  if (const auto known = mappings_.find(key); known != mappings_.end())
    return use(known->second, address);
  const auto no = refused_.extract(key);
  throw Error(no ? no.mapped() : "another thread has closed the memory");
}

void* DevicePeers::use(Mapping& m, const DeviceAddress& address) {
  ++m.users;
  m.used = ++clock_;
  return static_cast<std::byte*>(m.opened) + (address.at - address.base);
}

// Marks mappings that overlap this new allocation, since their memory was freed. While they are
// mapped, CUDA may reject the new mapping (cudaErrorAlreadyMapped), so they are closed even if this
// call fails: the next call may succeed.
void DevicePeers::mark_stale(const Key& key, const DeviceAddress& address) {
  for (auto& [other_key, other] : mappings_)
    if (std::get<0>(other_key) == address.process && std::get<1>(other_key) != std::get<1>(key) &&
        other.base < address.base + address.exported.bytes &&
        address.base < other.base + other.bytes)
      any_stale_ = other.stale = true;
}

void DevicePeers::open(Device& device, const Key& key, const DeviceAddress& address) {
  mark_stale(key, address);
  Mapping m;
  m.base = address.base;
  m.bytes = address.exported.bytes;
  m.opened = device.open(address.exported, address.pid, std::get<2>(key));
  mappings_[key] = m;
}

void DevicePeers::open_wanted(Device& device) noexcept {
  if (!any_wanted_) return;
  const MutexLock lock(mutex_);
  any_wanted_ = false;
  if (refused_.size() > kKept) refused_.clear();
  for (const auto& [key, address] : std::exchange(wanted_, {})) try {
      open(device, key, address);
    } catch (const std::exception& e) {
      refused_[key] = e.what();
    }
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
  static DevicePeers* const peers = new DevicePeers;  // never destroyed, like the device
  return *peers;
}

}  // namespace weft
