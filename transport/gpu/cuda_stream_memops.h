// Makes streams write words of pinned memory and wait for them, with the driver's stream memory
// operations, or with kernels if the driver does not support them (or WEFT_CUDA_MEMOPS=off).
#pragma once

#include <atomic>
#include <cstdint>

#include "transport/gpu/cuda_call.h"

namespace weft::cuda {

bool capturing(cudaStream_t stream);

class CudaWords {
 public:
  CudaWords();
  void write(cudaStream_t stream, int gpu, std::atomic<std::uint32_t>* word,
             std::uint32_t value) const;
  void wait(cudaStream_t stream, int gpu, std::atomic<std::uint32_t>* word,
            std::uint32_t value) const;

 private:
  CUresult (*write_)(CUstream, CUdeviceptr, cuuint32_t, unsigned) = nullptr;
  CUresult (*wait_)(CUstream, CUdeviceptr, cuuint32_t, unsigned) = nullptr;
};

// Kernels on the current GPU, in gpu/cuda_stream_memops.cu.
cudaError_t launch_write(cudaStream_t stream, void* word, std::uint32_t value);
cudaError_t launch_wait(cudaStream_t stream, void* word, std::uint32_t value);
cudaError_t load_words();

}  // namespace weft::cuda
