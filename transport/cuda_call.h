// What calls of the CUDA runtime and driver have in common.
#pragma once

#include <cuda.h>
#include <cuda_runtime_api.h>

namespace weft::cuda {

// Throws an Error that names the call, the GPU and a remedy.
[[noreturn]] void fail(const char* call, int gpu, cudaError_t error);

// Makes a GPU current for a while; the user's choice comes back at the end.
class OnGpu {
 public:
  explicit OnGpu(int gpu) {
    cudaGetDevice(&before_);
    if (before_ == gpu) return;
    if (const cudaError_t e = cudaSetDevice(gpu); e != cudaSuccess) fail("cudaSetDevice", gpu, e);
    moved_ = true;
  }
  ~OnGpu() {
    if (moved_) cudaSetDevice(before_);
  }
  OnGpu(const OnGpu&) = delete;
  OnGpu& operator=(const OnGpu&) = delete;

 private:
  int before_ = 0;
  bool moved_ = false;
};

// Calls that would end a capture of the user's are fine here: they touch nothing of it.
class Relaxed {
 public:
  Relaxed() { cudaThreadExchangeStreamCaptureMode(&mode_); }
  ~Relaxed() { cudaThreadExchangeStreamCaptureMode(&mode_); }
  Relaxed(const Relaxed&) = delete;
  Relaxed& operator=(const Relaxed&) = delete;

 private:
  cudaStreamCaptureMode mode_ = cudaStreamCaptureModeRelaxed;
};

// A function of the driver, asked for at run time: nothing of it is linked, so the same program
// runs where there is no driver. Null where it has none of that name. version: as CUDART_VERSION
// counts.
void* driver_entry(const char* name, unsigned version);
template <class Fn>
Fn driver_function(const char* name, unsigned version) {
  return reinterpret_cast<Fn>(driver_entry(name, version));
}

}  // namespace weft::cuda
