// Arithmetic on host memory: n-way reduction in one pass, scaling, copies.
//
// These functions depend on element types and operators, but not on ranks. All functions are pure
// and thread-safe.
#pragma once

#include <cstddef>

#include "coll/types.h"

namespace weft {

// dst[i] = srcs[0][i] op srcs[1][i] op ... in this order; dst may be one of the sources. kAvg and
// kPreMulSum reduce like kSum (see scale and multiply). fp16 and bf16 accumulate in fp32 and round
// once. Integers wrap around. min and max of a NaN and a number give either. An element's result
// depends on nothing but the sources' elements: not on the processor, alignment or count.
// reduce_kernel() returns nullptr if the operator is not defined for the type.
using ReduceFn = void (*)(void* dst, const void* const* srcs, int nsrcs, std::size_t count);
ReduceFn reduce_kernel(DType type, RedOp op) noexcept;

// dst[i] = src[i] / n; integers divide towards zero. src may equal dst.
void scale(void* dst, const void* src, DType type, int n, std::size_t count) noexcept;

// dst[i] = src[i] * factor; integers wrap around and need a whole factor. src may equal dst.
void multiply(void* dst, const void* src, DType type, double factor, std::size_t count) noexcept;

// "avx512", "avx2" or "base": the kernels that reduce_kernel() chose for this processor.
const char* kernel_isa() noexcept;

}  // namespace weft
