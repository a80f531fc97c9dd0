// Memory of a GPU as a dma-buf: the file that lets the kernel give another device, such as an RDMA
// card, a way to it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

namespace weft {

struct Dmabuf {
  int fd = -1;               // the caller closes it; -1: there is none, and `why` says why
  std::uint64_t offset = 0;  // where `data` is in it
  std::string why;
};

#ifdef WEFT_HAVE_CUDA
// Of [data, data + bytes), device memory of one allocation. Needs CUDA 11.7, a driver with the open
// kernel modules, and Linux 5.12.
Dmabuf cuda_dmabuf(const void* data, std::size_t bytes);
#else
inline Dmabuf cuda_dmabuf(const void*, std::size_t) { return {.why = "this build has no CUDA"}; }
#endif

}  // namespace weft
