// Exports GPU memory as a dma-buf, through which other devices such as RDMA NICs can access it.
#pragma once

#include <cstddef>

#include "transport/gpu/device.h"

namespace weft {

// Exports [data, data + bytes), device memory within one allocation. Requires CUDA 11.7, a driver
// with the open kernel modules, and Linux 5.12.
NicMemory cuda_dmabuf(const void* data, std::size_t bytes);

}  // namespace weft
