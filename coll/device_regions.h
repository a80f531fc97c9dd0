// Memory of GPUs that RDMA cards send from and receive into: taken for one communicator, given back
// where no stream waits (device_gates.h), else kept for the next one. Not installed. Thread-safe.
#pragma once

#include <cstddef>
#include <memory>

#include "transport/device_region.h"

namespace weft {

// At least so many bytes. Throws Error when the device refuses.
std::unique_ptr<DeviceRegion> take_region(Device& device, int gpu, std::size_t bytes);
void give_back_region(int gpu, std::unique_ptr<DeviceRegion> memory);

}  // namespace weft
