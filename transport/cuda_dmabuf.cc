// Exports GPU memory by cuMemGetHandleForAddressRange.
#include "transport/cuda_dmabuf.h"

#include <cuda.h>
#include <cuda_runtime_api.h>
#include <fmt/format.h>
#include <unistd.h>

namespace weft {
namespace {

// Asked for at run time, as in cuda_device.cc: nothing of the driver is linked.
using GetHandle = CUresult (*)(void*, CUdeviceptr, std::size_t, CUmemRangeHandleType,
                               unsigned long long);

GetHandle get_handle() {
  void* found = nullptr;
  cudaDriverEntryPointQueryResult result;
#if CUDART_VERSION >= 12050
  const cudaError_t error = cudaGetDriverEntryPointByVersion(
      "cuMemGetHandleForAddressRange", &found, 11070, cudaEnableDefault, &result);
#else
  const cudaError_t error = cudaGetDriverEntryPoint("cuMemGetHandleForAddressRange", &found,
                                                    cudaEnableDefault, &result);
#endif
  if (error != cudaSuccess) {
    cudaGetLastError();  // what does not stick is not seen by the next caller
    return nullptr;
  }
  return reinterpret_cast<GetHandle>(found);
}

}  // namespace

Dmabuf cuda_dmabuf(const void* data, std::size_t bytes) {
  static const GetHandle call = get_handle();
  if (call == nullptr) return {.why = "this driver has no cuMemGetHandleForAddressRange"};
  // Whole pages only; an allocation of CUDA begins with one, and its last one is its own.
  const auto page = static_cast<std::uintptr_t>(sysconf(_SC_PAGESIZE));
  const auto first = reinterpret_cast<std::uintptr_t>(data);
  const std::uintptr_t begin = first / page * page;
  const std::uintptr_t end = (first + bytes + page - 1) / page * page;
  Dmabuf made;
  const CUresult result =
      call(&made.fd, begin, end - begin, CU_MEM_RANGE_HANDLE_TYPE_DMA_BUF_FD, 0);
  if (result != CUDA_SUCCESS) {
    made.fd = -1;
    made.why = fmt::format("cuMemGetHandleForAddressRange says {}", static_cast<int>(result));
  }
  made.offset = first - begin;
  return made;
}

}  // namespace weft
