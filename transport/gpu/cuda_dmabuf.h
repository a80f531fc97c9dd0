// Exports GPU memory as a dma-buf, a file by which the kernel gives another device, such as an RDMA
// NIC, access to the memory.
#pragma once

#include <cstddef>

#include "transport/gpu/device.h"

namespace weft {

// Exports [data, data + bytes), device memory of one allocation. Needs CUDA 11.7, a driver with the
// open kernel modules, and Linux 5.12; elsewhere CardMemory::why tells the reason.
CardMemory cuda_dmabuf(const void* data, std::size_t bytes);

}  // namespace weft
