// One table of kernels per instruction set; kernels_isa.cc is compiled once for each.
#pragma once

#include "coll/kernels.h"

namespace weft {

using ScaleFn = void (*)(void* dst, const void* src, int n, std::size_t count);

struct KernelTable {
  const char* isa;
  ReduceFn reduce[6][3];  // [DType][kSum, kMin, kMax]
  ScaleFn scale_half[2];  // fp16, bf16
};

extern const KernelTable kernels_base, kernels_avx2, kernels_avx512;

}  // namespace weft
