// Errors, current GPU and entry points of calls to the CUDA runtime and driver.
#pragma once

#include <cuda.h>
#include <cuda_runtime_api.h>

namespace weft::cuda {

// Throws an Error that names the call, the GPU and a remedy.
[[noreturn]] void fail(const char* call, int gpu, cudaError_t error);

// Makes a GPU current while the object lives, by a push of its context. cudaSetDevice() would not
// do: the way back would make a context on GPU 0 in every process that never used GPU 0, and driver
// calls find no context in a thread that has not called the runtime.
class OnGpu {
 public:
  explicit OnGpu(int gpu);
  ~OnGpu();
  OnGpu(const OnGpu&) = delete;
  OnGpu& operator=(const OnGpu&) = delete;

 private:
  bool pushed_ = false;
};

// Returns the GPU that this thread has chosen, or the only one; -1: neither.
int gpu_chosen() noexcept;
// Returns the current GPU if the process uses it, else another GPU in use; -1: none is in use.
int gpu_in_use() noexcept;

// Makes a GPU in use current while the object lives, for calls that work on any GPU or find theirs
// by an argument. In a thread without a context the runtime would make one on GPU 0 for such calls.
class OnAnyGpu {
 public:
  OnAnyGpu() noexcept;
  ~OnAnyGpu();
  OnAnyGpu(const OnAnyGpu&) = delete;
  OnAnyGpu& operator=(const OnAnyGpu&) = delete;

 private:
  bool pushed_ = false;
};

// Lets this thread make calls that would otherwise invalidate a stream capture of the user.
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
// Returns null where the driver has no function `name` of that CUDART_VERSION.
void* driver_entry(const char* name, unsigned version);
// Returns driver_entry() as a function pointer.
template <class Fn>
Fn driver_function(const char* name, unsigned version) {
  return reinterpret_cast<Fn>(driver_entry(name, version));
}

// Sets CUDA_MODULE_LOADING=EAGER and CUDA_DEVICE_MAX_CONNECTIONS=32 unless the user has set them;
// CUDA reads them when it starts. With MPS, whose clients share one pool of connections, 8: a rank
// has four streams, and eight ranks of 32 connections exhausted the pool of an H200. A kernel that
// is loaded when it first runs, also one of a library, waits for streams that wait for weft, and
// holds a lock that weft's kernels need. Streams that share a connection wait for each other.
void prepare_environment();
// Logs it where kernels are loaded when they first run: the program started CUDA before, or the
// user wants it.
void tell_of_lazy_loading();

}  // namespace weft::cuda
