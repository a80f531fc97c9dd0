// Single-thread kernels that write words and wait for them. Not host functions
// (cudaLaunchHostFunc): they "must not perform any synchronization that may depend on outstanding
// CUDA work not mandated to run earlier", and one thread may run the host functions of all streams.
#include <cuda_runtime.h>

#include "transport/gpu/cuda_stream_memops.h"

namespace weft::cuda {
namespace {

__global__ void write_kernel(volatile std::uint32_t* word, std::uint32_t value) {
  __threadfence_system();  // makes earlier work visible with the word
  *word = value;
}

__global__ void wait_kernel(const volatile std::uint32_t* word, std::uint32_t value) {
  while (*word != value) __nanosleep(500);
  __threadfence_system();
}

}  // namespace

// Mapped host memory has the same address on host and GPU.
cudaError_t launch_write(cudaStream_t stream, void* word, std::uint32_t value) {
  write_kernel<<<1, 1, 0, stream>>>(static_cast<std::uint32_t*>(word), value);
  return cudaGetLastError();
}
cudaError_t launch_wait(cudaStream_t stream, void* word, std::uint32_t value) {
  wait_kernel<<<1, 1, 0, stream>>>(static_cast<std::uint32_t*>(word), value);
  return cudaGetLastError();
}

// cudaFuncGetAttributes() loads the kernel.
cudaError_t load_words() {
  cudaFuncAttributes found;
  const cudaError_t e =
      cudaFuncGetAttributes(&found, reinterpret_cast<const void*>(&write_kernel));
  if (e != cudaSuccess) return e;
  return cudaFuncGetAttributes(&found, reinterpret_cast<const void*>(&wait_kernel));
}

}  // namespace weft::cuda
