// Kernels of one thread that write words and wait for them. Host functions (cudaLaunchHostFunc)
// will not do: they "must not perform any synchronization that may depend on outstanding CUDA work
// not mandated to run earlier", and one thread may run the host functions of all streams.
#include <cuda_runtime.h>

#include "transport/gpu/cuda_stream_memops.h"

namespace weft::cuda {
namespace {

__global__ void write_kernel(volatile std::uint32_t* word, std::uint32_t value) {
  __threadfence_system();  // whoever sees the word sees what came before
  *word = value;
}

__global__ void wait_kernel(const volatile std::uint32_t* word, std::uint32_t value) {
  while (*word != value) __nanosleep(500);
  __threadfence_system();
}

}  // namespace

// Host memory that is mapped has one address for both.
cudaError_t launch_write(cudaStream_t stream, void* word, std::uint32_t value) {
  write_kernel<<<1, 1, 0, stream>>>(static_cast<std::uint32_t*>(word), value);
  return cudaGetLastError();
}
cudaError_t launch_wait(cudaStream_t stream, void* word, std::uint32_t value) {
  wait_kernel<<<1, 1, 0, stream>>>(static_cast<std::uint32_t*>(word), value);
  return cudaGetLastError();
}

// Asking for a kernel's attributes loads it.
cudaError_t load_words() {
  cudaFuncAttributes found;
  const cudaError_t e =
      cudaFuncGetAttributes(&found, reinterpret_cast<const void*>(&write_kernel));
  if (e != cudaSuccess) return e;
  return cudaFuncGetAttributes(&found, reinterpret_cast<const void*>(&wait_kernel));
}

}  // namespace weft::cuda
