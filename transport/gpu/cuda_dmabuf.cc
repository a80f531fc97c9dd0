// Exports GPU memory with cuMemGetHandleForAddressRange. This file is independent of NICs.
#include "transport/gpu/cuda_dmabuf.h"

#include <cuda.h>
#include <cuda_runtime_api.h>
#include <fmt/format.h>
#include <unistd.h>

#include "transport/gpu/cuda_call.h"

namespace weft {
namespace {

using GetHandle = CUresult (*)(void*, CUdeviceptr, std::size_t, CUmemRangeHandleType,
                               unsigned long long);

}  // namespace

NicMemory cuda_dmabuf(const void* data, std::size_t bytes) {
  static const auto call = cuda::driver_function<GetHandle>("cuMemGetHandleForAddressRange", 11070);
  if (call == nullptr) return {.why = "this driver has no cuMemGetHandleForAddressRange"};
  const cuda::OnGpu on(device()->residence(data).gpu);  // the driver uses the current context
  // Exports whole pages; a CUDA allocation is page-aligned and does not share its last page.
  const auto page = static_cast<std::uintptr_t>(sysconf(_SC_PAGESIZE));
  const auto first = reinterpret_cast<std::uintptr_t>(data);
  const std::uintptr_t begin = first / page * page;
  const std::uintptr_t end = (first + bytes + page - 1) / page * page;
  NicMemory made;
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
