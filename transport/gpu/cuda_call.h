// Calls to CUDA: error messages, the current GPU, and entry points of the driver.
#pragma once

#include <cuda.h>
#include <cuda_runtime_api.h>

namespace weft::cuda {

// Throws an Error with the call, the GPU and a remedy.
[[noreturn]] void fail(const char* call, int gpu, cudaError_t error);

// Makes a GPU current for the lifetime of the object by pushing its context. cudaSetDevice() is no
// alternative: restoring the former device would create a context on GPU 0 in processes that never
// used it, and driver calls find no context in a thread that has not called the runtime.
class OnGpu {
 public:
  explicit OnGpu(int gpu);
  ~OnGpu();
  OnGpu(const OnGpu&) = delete;
  OnGpu& operator=(const OnGpu&) = delete;

 private:
  bool pushed_ = false;
};

// Returns the GPU that this thread has chosen, or the only one; otherwise -1.
int gpu_chosen() noexcept;
// Returns the current GPU if the process uses it, otherwise another GPU in use; -1 if none.
int gpu_in_use() noexcept;

// Makes any GPU in use current for the lifetime of the object, for calls that work on any GPU or
// that take the GPU from an argument. Without a context in the thread, the runtime would create one
// on GPU 0.
class OnAnyGpu {
 public:
  OnAnyGpu() noexcept;
  ~OnAnyGpu();
  OnAnyGpu(const OnAnyGpu&) = delete;
  OnAnyGpu& operator=(const OnAnyGpu&) = delete;

 private:
  bool pushed_ = false;
};

// Permits calls in this thread that would otherwise invalidate a user's stream capture.
class Relaxed {
 public:
  Relaxed() { cudaThreadExchangeStreamCaptureMode(&mode_); }
  ~Relaxed() { cudaThreadExchangeStreamCaptureMode(&mode_); }
  Relaxed(const Relaxed&) = delete;
  Relaxed& operator=(const Relaxed&) = delete;

 private:
  cudaStreamCaptureMode mode_ = cudaStreamCaptureModeRelaxed;
};

// Looks up a driver function at run time, so that the program also runs on hosts without a driver.
// Returns null if the driver lacks `name` of that CUDART_VERSION.
void* driver_entry(const char* name, unsigned version);
// Returns driver_entry() as a function pointer.
template <class Fn>
Fn driver_function(const char* name, unsigned version) {
  return reinterpret_cast<Fn>(driver_entry(name, version));
}

// Sets CUDA_MODULE_LOADING=EAGER and CUDA_DEVICE_MAX_CONNECTIONS=32 unless the user has set them;
// CUDA reads them when it starts. With MPS it sets 8 connections, since MPS clients share a pool: a
// rank has four streams, and eight ranks with 32 connections exhausted the pool of an H200. A
// lazily loaded kernel, even of another library, waits for streams that wait for weft and holds a
// lock that weft's kernels need. Streams that share a connection wait for each other.
void prepare_environment();
// Logs if kernels are still loaded lazily, because CUDA had started before, or because the user
// requested lazy loading.
void tell_of_lazy_loading();

}  // namespace weft::cuda
