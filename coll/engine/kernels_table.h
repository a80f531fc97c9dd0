// One table of kernels per instruction set; kernels_isa.cc is compiled once for each.
#pragma once

#include "coll/engine/kernels.h"

namespace weft {

using ScaleFn = void (*)(void* dst, const void* src, int n, std::size_t count);
using MultiplyFn = void (*)(void* dst, const void* src, double factor, std::size_t count);

// The encode() and decode_sum() of codec.h for one codec.
struct CodecTable {
  void (*encode)(std::byte* to, const float* x, const float* carry, float* error,
                 std::size_t count);
  void (*decode_sum)(float* to, const std::byte* const* from, int n, std::size_t count);
};

struct KernelTable {
  const char* isa;
  ReduceFn reduce[kDTypes][kRedOps];  // nullptr if the operator is undefined
  ScaleFn scale[kDTypes];
  MultiplyFn multiply_half[2];  // fp16, bf16
  const CodecTable* codecs;     // int8, fp8
};

extern const CodecTable codecs_base[], codecs_avx2[], codecs_avx512[];
extern const KernelTable kernels_base, kernels_avx2, kernels_avx512;

}  // namespace weft
