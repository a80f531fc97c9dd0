// CUDA error messages, the current GPU of a thread, and driver functions looked up at run time.
// This file is independent of memory and streams.
#include "transport/gpu/cuda_call.h"

#include <fmt/format.h>
#include <unistd.h>

#include <cstdlib>
#include <map>
#include <string>

#include "topo/base/log.h"
#include "topo/base/mutex.h"
#include "topo/base/status.h"

namespace weft::cuda {
namespace {

const char* remedy(cudaError_t error) {
  switch (error) {
    case cudaErrorMemoryAllocation:
      return "free memory of the GPU, or use smaller buffers; nvidia-smi shows its users";
    case cudaErrorInvalidResourceHandle:
      return "a stream or event was destroyed before weft was done with it, or belongs to another "
             "context";
    case cudaErrorInvalidValue:
      return "was the memory freed before the collective was done?";
    case cudaErrorPeerAccessUnsupported:
      return "these GPUs do not reach each other (nvidia-smi topo -p2p r)";
    case cudaErrorMapBufferObjectFailed:
    case cudaErrorAlreadyMapped:
      return "another library of this process has opened the same memory";
    case cudaErrorIllegalAddress:
    case cudaErrorLaunchFailure:
      return "an earlier kernel of this process failed; run it under compute-sanitizer";
    case cudaErrorStreamCaptureUnsupported:
    case cudaErrorStreamCaptureInvalidated:
    case cudaErrorStreamCaptureImplicit:
      return "this cannot be captured in a graph (docs/gpu.md)";
    case cudaErrorNoKernelImageForDevice:
      return "build weft with CMAKE_CUDA_ARCHITECTURES for this GPU";
    default:
      return "CUDA_LAUNCH_BLOCKING=1 and compute-sanitizer show where it began";
  }
}

// Driver functions without a runtime equivalent.
struct Contexts {
  CUresult (*current)(CUcontext*) = driver_function<decltype(current)>("cuCtxGetCurrent", 4000);
  CUresult (*device)(CUdevice*) = driver_function<decltype(device)>("cuCtxGetDevice", 2000);
  CUresult (*push)(CUcontext) = driver_function<decltype(push)>("cuCtxPushCurrent", 4000);
  CUresult (*pop)(CUcontext*) = driver_function<decltype(pop)>("cuCtxPopCurrent", 4000);
  CUresult (*retain)(CUcontext*,
                     CUdevice) = driver_function<decltype(retain)>("cuDevicePrimaryCtxRetain",
                                                                   7000);
  CUresult (*state)(CUdevice, unsigned*,
                    int*) = driver_function<decltype(state)>("cuDevicePrimaryCtxGetState", 7000);
};
const Contexts& contexts() {
  static const Contexts all;
  return all;
}

// Returns the GPU whose context is current in this thread; -1 if none is.
int current_gpu() noexcept {
  const Contexts& c = contexts();
  CUcontext context = nullptr;
  CUdevice gpu = -1;
  if (!c.current || !c.device || c.current(&context) != CUDA_SUCCESS || !context ||
      c.device(&gpu) != CUDA_SUCCESS)
    return -1;
  return gpu;
}

// Returns the primary context, which the runtime uses as well (both number GPUs alike). It is
// retained once, for the lifetime of the process.
CUcontext context_of(int gpu) {
  static Mutex mutex;
  // Never destroyed: used by destructors of statics.
  static auto* const known WEFT_PT_GUARDED_BY(mutex) = new std::map<int, CUcontext>;
  const MutexLock lock(mutex);
  const auto found = known->find(gpu);
  if (found != known->end()) return found->second;
  CUcontext context = nullptr;
  if (!contexts().retain || contexts().retain(&context, gpu) != CUDA_SUCCESS) return nullptr;
  return (*known)[gpu] = context;
}

}  // namespace

OnGpu::OnGpu(int gpu) {
  if (gpu >= 0 && current_gpu() == gpu) return;
  const CUcontext context = gpu >= 0 ? context_of(gpu) : nullptr;
  if (!context || contexts().push(context) != CUDA_SUCCESS)
    fail("cuDevicePrimaryCtxRetain and cuCtxPushCurrent", gpu, cudaErrorDeviceUninitialized);
  pushed_ = true;
}
OnGpu::~OnGpu() {
  CUcontext popped = nullptr;
  if (pushed_) contexts().pop(&popped);
}

namespace {
bool used(int gpu) noexcept {
  unsigned flags = 0;
  int active = 0;
  return contexts().state && contexts().state(gpu, &flags, &active) == CUDA_SUCCESS && active;
}
}  // namespace

// cudaGetDevice() returns 0 by default, so GPU 0 is treated as chosen only if its context is
// active.
int gpu_chosen() noexcept {
  if (const int gpu = current_gpu(); gpu >= 0) return gpu;
  int chosen = 0, count = 0;
  if (cudaGetDevice(&chosen) == cudaSuccess && (chosen > 0 || used(chosen))) return chosen;
  return cudaGetDeviceCount(&count) == cudaSuccess && count == 1 ? 0 : -1;
}

int gpu_in_use() noexcept {
  if (const int gpu = current_gpu(); gpu >= 0) return gpu;
  int chosen = 0, count = 0;
  if (cudaGetDevice(&chosen) == cudaSuccess && used(chosen)) return chosen;
  if (cudaGetDeviceCount(&count) != cudaSuccess) count = 0;
  for (int gpu = 0; gpu < count; ++gpu)
    if (used(gpu)) return gpu;
  return -1;
}

OnAnyGpu::OnAnyGpu() noexcept {
  if (current_gpu() >= 0) return;
  const int gpu = gpu_in_use();
  const CUcontext context = gpu >= 0 ? context_of(gpu) : nullptr;
  pushed_ = context && contexts().push(context) == CUDA_SUCCESS;
}
OnAnyGpu::~OnAnyGpu() {
  CUcontext popped = nullptr;
  if (pushed_) contexts().pop(&popped);
}

void fail(const char* call, int gpu, cudaError_t error) {
  cudaGetLastError();  // clears a non-sticky error for the next caller
  throw Error(fmt::format("{} on GPU {}: {} ({}); {}", call, gpu, cudaGetErrorString(error),
                          cudaGetErrorName(error), remedy(error)));
}

void prepare_environment() {
  setenv("CUDA_MODULE_LOADING", "EAGER", 0);
  const char* const pipes = std::getenv("CUDA_MPS_PIPE_DIRECTORY");
  const std::string control = std::string(pipes ? pipes : "/tmp/nvidia-mps") + "/control";
  const bool mps = access(control.c_str(), F_OK) == 0;
  setenv("CUDA_DEVICE_MAX_CONNECTIONS", mps ? "8" : "32", 0);
}

void tell_of_lazy_loading() {
  CUresult (*mode)(CUmoduleLoadingMode*) =
      driver_function<decltype(mode)>("cuModuleGetLoadingMode", 11070);
  CUmoduleLoadingMode found = CU_MODULE_EAGER_LOADING;
  if (mode && mode(&found) == CUDA_SUCCESS && found != CU_MODULE_EAGER_LOADING)
    log().info(
        "weft: CUDA loads kernels when they first run, and may hang where a stream waits for a "
        "collective then: set CUDA_MODULE_LOADING=EAGER before the program's first CUDA call, or "
        "run each kernel once before the first call on a stream");
}

void* driver_entry(const char* name, unsigned version) {
  void* found = nullptr;
  cudaDriverEntryPointQueryResult result;
#if CUDART_VERSION >= 12050
  if (cudaGetDriverEntryPointByVersion(name, &found, version, cudaEnableDefault, &result) !=
      cudaSuccess)
    found = nullptr;
#else
  (void)version;
  if (cudaGetDriverEntryPoint(name, &found, cudaEnableDefault, &result) != cudaSuccess)
    found = nullptr;
#endif
  cudaGetLastError();
  return found;
}

}  // namespace weft::cuda
