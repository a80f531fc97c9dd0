#include "coll/device_regions.h"

#include <map>
#include <mutex>
#include <utility>

#include "coll/device_gates.h"

namespace weft {
namespace {

struct SpareRegions {
  std::mutex mutex;
  std::multimap<int, std::unique_ptr<DeviceRegion>> of_gpu;
};
SpareRegions& spare_regions() {
  static SpareRegions* const all = new SpareRegions;  // never destroyed, as the device
  return *all;
}

}  // namespace

std::unique_ptr<DeviceRegion> take_region(Device& device, int gpu, std::size_t bytes) {
  {
    SpareRegions& spare = spare_regions();
    const std::lock_guard lock(spare.mutex);
    const auto [begin, end] = spare.of_gpu.equal_range(gpu);
    for (auto at = begin; at != end; ++at)
      if (at->second->size() >= bytes) return std::move(spare.of_gpu.extract(at).mapped());
  }
  return std::make_unique<DeviceRegion>(device, gpu, bytes);
}

void give_back_region(int gpu, std::unique_ptr<DeviceRegion> memory) {
  if (!memory || unless_streams_wait([&] { memory.reset(); })) return;
  SpareRegions& spare = spare_regions();
  const std::lock_guard lock(spare.mutex);
  spare.of_gpu.emplace(gpu, std::move(memory));
}

}  // namespace weft
