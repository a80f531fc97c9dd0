// The table of device memory that weft owns. This file is independent of its use.
#include "transport/gpu/device_region.h"

#include <iterator>
#include <map>

#include "topo/base/log.h"
#include "topo/base/mutex.h"
#include "topo/base/status.h"

namespace weft {
namespace {

struct Region {
  std::size_t bytes;
  std::uint64_t serial;
};
struct Regions {
  Mutex mutex;
  std::map<std::uintptr_t, Region> by_address WEFT_GUARDED_BY(mutex);
  std::uint64_t next WEFT_GUARDED_BY(mutex) = kFirstDeviceRegion;
};

Regions& regions() {
  static Regions* const all = new Regions;  // never destroyed, like the device
  return *all;
}

}  // namespace

DeviceRegion::DeviceRegion(Device& device, int gpu, std::size_t bytes)
    : device_(device), data_(static_cast<std::byte*>(device.alloc(gpu, bytes))), bytes_(bytes) {
  Regions& all = regions();
  const MutexLock lock(all.mutex);
  all.by_address[reinterpret_cast<std::uintptr_t>(data_)] = {bytes, all.next++};
}

DeviceRegion::~DeviceRegion() {
  {
    Regions& all = regions();
    const MutexLock lock(all.mutex);
    all.by_address.erase(reinterpret_cast<std::uintptr_t>(data_));
  }
  try {
    device_.free(data_);
  } catch (const Error& e) {
    log().info("weft: {}", e.what());
  }
}

RegionRef find_device_region(const void* data, std::size_t bytes) noexcept {
  const auto at = reinterpret_cast<std::uintptr_t>(data);
  Regions& all = regions();
  const MutexLock lock(all.mutex);
  auto next = all.by_address.upper_bound(at);
  if (next == all.by_address.begin()) return {};
  const auto& [begin, region] = *std::prev(next);
  if (at + bytes > begin + region.bytes) return {};
  RegionRef ref;
  ref.serial = region.serial;
  ref.offset = at - begin;
  return ref;
}

std::size_t device_region_bytes(const RegionRef& ref) noexcept {
  Regions& all = regions();
  const MutexLock lock(all.mutex);
  for (const auto& [begin, region] : all.by_address)
    if (region.serial == ref.serial) return region.bytes;
  return 0;
}

}  // namespace weft
