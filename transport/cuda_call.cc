#include "transport/cuda_call.h"

#include <fmt/format.h>

#include "topo/status.h"

namespace weft::cuda {
namespace {

const char* remedy(cudaError_t error) {
  switch (error) {
    case cudaErrorMemoryAllocation:
      return "free memory of the GPU, or use smaller buffers; nvidia-smi shows who holds it";
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

}  // namespace

void fail(const char* call, int gpu, cudaError_t error) {
  cudaGetLastError();  // what does not stick is not seen by the next caller
  throw Error(fmt::format("{} on GPU {}: {} ({}); {}", call, gpu, cudaGetErrorString(error),
                          cudaGetErrorName(error), remedy(error)));
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
