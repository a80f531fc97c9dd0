// Memory of a GPU as a dma-buf: the file that lets the kernel give another device, such as an RDMA
// NIC, a way to it.
#pragma once

#include <cstddef>

#include "transport/gpu/device.h"

namespace weft {

// Of [data, data + bytes), device memory of one allocation. Needs CUDA 11.7, a driver with the open
// kernel modules, and Linux 5.12.
NicMemory cuda_dmabuf(const void* data, std::size_t bytes);

}  // namespace weft
