// Launches kernels on a GPU: a thread per item, a warp per team, in grid-stride loops. CUDA sources
// only instantiate launch_on_gpu() for their kernels, since tests run the kernels on the CPU. If a
// source defines launch_on_tensor_cores() for a kernel, that function launches the kernel if the
// arguments allow.
#pragma once

#include <cuda_runtime.h>

#include <algorithm>

#include "train/device/kernel.h"

namespace weft::train::kernels {

inline constexpr int kThreads = 256;
inline constexpr std::size_t kTeamsOfBlock = kThreads / kLanes;
// Twice the occupancy: blocks of the second half start as blocks of the first half end.
inline constexpr std::size_t kBlocksPerMultiprocessor = 16;

template <class K>
__global__ void __launch_bounds__(kThreads) run_items(const __grid_constant__ K k) {
  const std::size_t stride = std::size_t{gridDim.x} * kThreads, end = k.items();
  for (std::size_t i = std::size_t{blockIdx.x} * kThreads + threadIdx.x; i < end; i += stride)
    k.item(i);
}

template <class K>
__global__ void __launch_bounds__(kThreads) run_teams(const __grid_constant__ K k) {
  GpuTeam team;
  const std::size_t stride = std::size_t{gridDim.x} * kTeamsOfBlock, end = k.teams();
  for (std::size_t i = std::size_t{blockIdx.x} * kTeamsOfBlock + threadIdx.x / kLanes; i < end;
       i += stride)
    k.team(team, i);
}

// Querying a kernel's attributes loads it. `local`: updated to the largest local memory per thread.
template <class K>
cudaError_t load(std::size_t& local) {
  const auto see = [&](const void* kernel) {
    cudaFuncAttributes found{};
    const cudaError_t error = cudaFuncGetAttributes(&found, kernel);
    local = std::max(local, found.localSizeBytes);
    return error;
  };
  if constexpr (requires(const K* k) { load_for_tensor_cores(k); })
    if (const auto error = load_for_tensor_cores(static_cast<const K*>(nullptr))) return error;
  if constexpr (HasTeams<K>)
    return see(reinterpret_cast<const void*>(&run_teams<K>));
  else
    return see(reinterpret_cast<const void*>(&run_items<K>));
}

// Reserves local memory in advance. Otherwise the first launch that needs more makes the driver
// wait for all streams, and a stream may wait for a collective that needs this thread.
inline cudaError_t reserve_local(std::size_t bytes) {
  std::size_t now = 0;
  const cudaError_t error = cudaDeviceGetLimit(&now, cudaLimitStackSize);
  if (error != cudaSuccess || bytes <= now) return error;
  return cudaDeviceSetLimit(cudaLimitStackSize, bytes);
}

template <class K>
int launch_on_gpu(const void* args, void* stream) {
  const K& k = *static_cast<const K*>(args);
  int gpu = 0, processors = 1;
  cudaGetDevice(&gpu);
  cudaDeviceGetAttribute(&processors, cudaDevAttrMultiProcessorCount, gpu);
  const auto blocks = [&](std::size_t work, std::size_t of_block) {
    const auto most = static_cast<std::size_t>(processors) * kBlocksPerMultiprocessor;
    return static_cast<unsigned>(
        std::clamp<std::size_t>((work + of_block - 1) / of_block, 1, most));
  };
  const auto s = static_cast<cudaStream_t>(stream);
  if constexpr (requires { launch_on_tensor_cores(k, s); })
    if (launch_on_tensor_cores(k, s)) return static_cast<int>(cudaGetLastError());
  if constexpr (HasTeams<K>)
    run_teams<K><<<blocks(k.teams(), kTeamsOfBlock), kThreads, 0, s>>>(k);
  else
    run_items<K><<<blocks(k.items(), kThreads), kThreads, 0, s>>>(k);
  return static_cast<int>(cudaGetLastError());
}

// Defines Name(), which loads all kernels of a list (kernels.h), and instantiates their launches.
#define WEFT_LAUNCH(Kernel, Element) \
  template int launch_on_gpu<Kernel<Element>>(const void*, void*);
#define WEFT_LOAD(Kernel, Element) \
  if (error == cudaSuccess) error = load<Kernel<Element>>(local);
#define WEFT_LAUNCHES(Name, LIST)                                                      \
  LIST(WEFT_LAUNCH, Fp64)                                                              \
  LIST(WEFT_LAUNCH, Fp32) LIST(WEFT_LAUNCH, Bf16) LIST(WEFT_LAUNCH, Fp16) int Name() { \
    cudaError_t error = cudaSuccess;                                                   \
    std::size_t local = 0;                                                             \
    LIST(WEFT_LOAD, Fp64)                                                              \
    LIST(WEFT_LOAD, Fp32)                                                              \
    LIST(WEFT_LOAD, Bf16)                                                              \
    LIST(WEFT_LOAD, Fp16)                                                              \
    return static_cast<int>(error == cudaSuccess ? reserve_local(local) : error);      \
  }                                                                                    \
  static_assert(true)

}  // namespace weft::train::kernels
