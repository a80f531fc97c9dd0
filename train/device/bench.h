// `weft bench kernels`: measures each kernel of the device backend against the memory bandwidth,
// and each product against the bf16 peak.
#pragma once

#include <cstddef>

#include "train/device/peaks.h"

namespace weft::train {

struct KernelBench {
  std::size_t rows = 16 * 1024, width = 768, vocabulary = 50304, heads = 12, positions = 1024;
  int repeat = 20;
  GpuPeaks peaks;  // peak rates; 0: gpu_peaks() for the GPU's name
};
// Measures on this rank's GPU and prints a table.
void bench_kernels(const KernelBench& bench);

}  // namespace weft::train
