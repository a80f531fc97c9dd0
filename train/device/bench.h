// `weft bench kernels`: measures each kernel of the device backend against the time in
// which the memory could move its bytes, and each product against the peak of bf16.
#pragma once

#include <cstddef>

#include "train/device/peaks.h"

namespace weft::train {

struct KernelBench {
  std::size_t rows = 16 * 1024, width = 768, vocabulary = 50304, heads = 12, positions = 1024;
  int repeat = 20;
  GpuPeaks peaks;  // 0: gpu_peaks() of the GPU's name
};
// Measures on this rank's GPU and prints a table.
void bench_kernels(const KernelBench& bench);

}  // namespace weft::train
