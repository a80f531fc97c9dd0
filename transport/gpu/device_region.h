// GPU memory that weft owns. Since weft knows when it is freed, RDMA NICs can register it once and
// cache the registration. This file is independent of NICs.
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

// The first serial of a DeviceRegion; the serials of weft::alloc are below.
inline constexpr std::uint64_t kFirstDeviceRegion = std::uint64_t{1} << 63;

// Returns the DeviceRegion that contains [data, data + bytes); serial 0 if none does. Thread-safe.
RegionRef find_device_region(const void* data, std::size_t bytes) noexcept;
// Returns the length of the DeviceRegion; 0 if it was freed. Thread-safe.
std::size_t device_region_bytes(const RegionRef& ref) noexcept;

}  // namespace weft
