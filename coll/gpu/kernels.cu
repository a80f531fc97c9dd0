// Launches the reduction kernel of arithmetic.h on a GPU. This file does not depend on ranks.
#include <cuda_runtime.h>

#include <algorithm>

#include "coll/gpu/arithmetic.h"

namespace weft {
namespace {

constexpr int kThreads = 512;
// Blocks per multiprocessor: enough loads in flight to keep the memory busy, and all resident, so
// that a kernel of another rank on the same GPU waits for one wave of work only.
constexpr int kBlocksPerMultiprocessor = 4;

template <class E, class Fn>
__global__ void __launch_bounds__(kThreads)
    reduce_kernel(const __grid_constant__ DeviceReduce r, device_arithmetic::Split s) {
  device_arithmetic::body<E, Fn>(r, s, blockIdx.x * std::size_t{kThreads} + threadIdx.x,
                                 gridDim.x * std::size_t{kThreads});
}

struct Launch {
  const DeviceReduce& reduce;
  cudaStream_t stream;
  template <class E, class Fn>
  void operator()() const {
    int gpu = 0, processors = 1;
    cudaGetDevice(&gpu);
    cudaDeviceGetAttribute(&processors, cudaDevAttrMultiProcessorCount, gpu);
    const device_arithmetic::Split s = device_arithmetic::split(reduce);
    const std::size_t items = std::max(
        {s.nvectors, s.head, reduce.count - s.head - s.nvectors * device_arithmetic::kVector /
                                                         sizeof(typename E::Stored)});
    const auto most = static_cast<std::size_t>(processors) * kBlocksPerMultiprocessor;
    const auto blocks = std::clamp<std::size_t>((items + kThreads - 1) / kThreads, 1, most);
    reduce_kernel<E, Fn><<<static_cast<unsigned>(blocks), kThreads, 0, stream>>>(reduce, s);
  }
};

// Querying a kernel's attributes loads it.
struct Load {
  int& error;
  template <class E, class Fn>
  void operator()() const {
    cudaFuncAttributes found;
    if (error == 0)
      error = static_cast<int>(cudaFuncGetAttributes(
          &found, reinterpret_cast<const void*>(&reduce_kernel<E, Fn>)));
  }
};

}  // namespace

namespace detail {

int launch_device_reduce(const void* args, void* stream) {
  const DeviceReduce& reduce = *static_cast<const DeviceReduce*>(args);
  device_arithmetic::with_kernel(reduce.type, reduce.op,
                                 Launch{reduce, static_cast<cudaStream_t>(stream)});
  return static_cast<int>(cudaGetLastError());
}

int load_device_reduce() {
  int error = 0;
  for (const DType type : kAllDTypes)
    for (int op = 0; op < kRedOps; ++op)
      device_arithmetic::with_kernel(type, static_cast<RedOp>(op), Load{error});
  return error;
}

}  // namespace detail
}  // namespace weft
