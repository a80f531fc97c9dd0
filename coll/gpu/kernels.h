// Reduction of device memory: one kernel that reads every source once and writes every result.
//
// Knows element types and operators, nothing of ranks. The same loops are compiled for the GPU
// (gpu/kernels.cu) and for the processor (gpu/kernels.cc), where they are tested.
#pragma once

#include <cstddef>

#include "coll/types.h"
#include "transport/gpu/device.h"

namespace weft {

// Sources and results of one kernel at most: they travel as its parameters.
inline constexpr int kDeviceOperands = 128;

// dst[d][i] = srcs[0][i] op srcs[1][i] op ... in this order, for every d. For kAvg the sum is
// divided by `divisor`; for kPreMulSum source k is multiplied by factors[k] first. Types, rounding
// and wrapping are those of coll/engine/kernels.h: the results are the same bit by bit. A
// destination may be one of the sources; other overlaps may not be. One source and any operator but
// kAvg is a copy. Pointers may be unaligned; aligned ones are fast.
struct DeviceReduce {
  DType type = DType::kFloat32;
  RedOp op = RedOp::kSum;
  int divisor = 1;
  int nsrcs = 0, ndsts = 0;
  std::size_t count = 0;
  const void* srcs[kDeviceOperands];
  void* dsts[kDeviceOperands];
  double factors[kDeviceOperands];  // kPreMulSum
};

// `reduce` must live as long as what is returned; launching copies it.
DeviceWork device_work(const DeviceReduce& reduce);
// Loads the kernels onto a GPU, once in a process: before any stream of it waits for weft.
void load_device_kernels(Device& device, int gpu);

namespace detail {
int launch_device_reduce(const void* args, void* stream);  // gpu/kernels.cu
int load_device_reduce();
}  // namespace detail

}  // namespace weft
