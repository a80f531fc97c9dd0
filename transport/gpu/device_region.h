// Memory of a GPU that belongs to weft, so that it is known when it goes: RDMA NICs may register
// it once and keep that. Knows nothing of NICs.
#pragma once

#include <cstddef>
#include <cstdint>

#include "transport/gpu/device.h"
#include "transport/memory/shared_region.h"

namespace weft {

class DeviceRegion {
 public:
  DeviceRegion(Device& device, int gpu, std::size_t bytes);  // throws Error
  ~DeviceRegion();
  DeviceRegion(const DeviceRegion&) = delete;
  DeviceRegion& operator=(const DeviceRegion&) = delete;
  std::byte* data() const { return data_; }
  std::size_t size() const { return bytes_; }

 private:
  Device& device_;
  std::byte* data_;
  std::size_t bytes_;
};

// Serials of these, unlike those of weft::alloc.
inline constexpr std::uint64_t kFirstDeviceRegion = std::uint64_t{1} << 63;

// As find_region() and region_bytes() for memory of weft::alloc: the region that holds
// [data, data + bytes), serial 0 where none does; how long it is, 0 once it is gone. Thread-safe.
RegionRef find_device_region(const void* data, std::size_t bytes) noexcept;
std::size_t device_region_bytes(const RegionRef& ref) noexcept;

}  // namespace weft
