// Reduction of device memory: one kernel that reads every source once and writes every result.
//
// These functions depend on element types and operators, but not on ranks. The same loops are
// compiled for the GPU (gpu/kernels.cu) and for the processor (gpu/kernels.cc), where they are
// tested.
#pragma once

#include <cstddef>

#include "coll/types.h"
#include "transport/gpu/device.h"

namespace weft {

// The most sources, and the most results, of one kernel: they are its parameters.
inline constexpr int kDeviceOperands = 128;

// dst[d][i] = srcs[0][i] op srcs[1][i] op ... in this order, for every d. For kAvg the sum is
// divided by `divisor`; for kPreMulSum source k is multiplied by factors[k] first. Types, rounding
// and wrapping are those of coll/engine/kernels.h: the results are equal bit for bit, except for
// NaN. A destination may be one of the sources; other overlaps are errors. With one source, all
// operators but kAvg and kPreMulSum copy. Pointers may be unaligned; aligned pointers are fast.
struct DeviceReduce {
  DType type = DType::kFloat32;
  RedOp op = RedOp::kSum;
  int divisor = 1;
  int nsrcs = 0, ndsts = 0;
  std::size_t count = 0;
  const void* srcs[kDeviceOperands];
  void* dsts[kDeviceOperands];
  double factors[kDeviceOperands];  // for kPreMulSum
};

// `reduce` must live as long as the returned work; a launch copies it.
DeviceWork device_work(const DeviceReduce& reduce);
// Loads the kernels onto a GPU and creates weft's own streams, once per process. Call it before any
// stream of that GPU waits.
void prepare_gpu(Device& device, int gpu);

namespace detail {
int launch_device_reduce(const void* args, void* stream);  // gpu/kernels.cu
int load_device_reduce();
}  // namespace detail

}  // namespace weft
