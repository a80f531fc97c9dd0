// What calls of the CUDA runtime and driver have in common.
#pragma once

#include <cuda.h>
#include <cuda_runtime_api.h>

namespace weft::cuda {

// Throws an Error that names the call, the GPU and a remedy.
[[noreturn]] void fail(const char* call, int gpu, cudaError_t error);

// Makes a GPU current for a while; what was current comes back at the end. The context is pushed:
// to go back by cudaSetDevice() would make one on GPU 0 in every process that never used it, and
// calls of the driver find none in a thread that has made no call of the runtime.
class OnGpu {
 public:
  explicit OnGpu(int gpu);
  ~OnGpu();
  OnGpu(const OnGpu&) = delete;
  OnGpu& operator=(const OnGpu&) = delete;

 private:
  bool pushed_ = false;
};

// The current GPU if it is in use, else one that is. -1: this process has used none.
int gpu_in_use() noexcept;

// For calls that do on any GPU, or know theirs by what they are given. The runtime makes a context
// for them in a thread that has none, on GPU 0: here one that is in use is current meanwhile.
class OnAnyGpu {
 public:
  OnAnyGpu() noexcept;
  ~OnAnyGpu();
  OnAnyGpu(const OnAnyGpu&) = delete;
  OnAnyGpu& operator=(const OnAnyGpu&) = delete;

 private:
  bool pushed_ = false;
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
