// Chooses the kernels for this processor, and the scaling that ends an average.
#include "coll/kernels.h"

#include <cstdint>
#include <cstring>

#include "coll/kernels_table.h"

namespace weft {
namespace {

const KernelTable& table() noexcept {
#ifdef WEFT_X86_ISAS
  static const KernelTable& chosen = []() -> const KernelTable& {
    if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
        __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512dq"))
      return kernels_avx512;
    if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") &&
        __builtin_cpu_supports("f16c"))
      return kernels_avx2;
    return kernels_base;
  }();
  return chosen;
#else
  return kernels_base;
#endif
}

template <class T>
void divide(T* dst, const T* src, int n, std::size_t count) {
  for (std::size_t i = 0; i < count; ++i) dst[i] = static_cast<T>(src[i] / static_cast<T>(n));
}

}  // namespace

ReduceFn reduce_kernel(DType type, RedOp op) noexcept {
  const auto column = op == RedOp::kAvg ? RedOp::kSum : op;
  return table().reduce[static_cast<int>(type)][static_cast<int>(column)];
}

void scale(void* dst, const void* src, DType type, int n, std::size_t count) noexcept {
  switch (type) {
    case DType::kFloat32:
      return divide(static_cast<float*>(dst), static_cast<const float*>(src), n, count);
    case DType::kFloat64:
      return divide(static_cast<double*>(dst), static_cast<const double*>(src), n, count);
    case DType::kInt32:
      return divide(static_cast<std::int32_t*>(dst), static_cast<const std::int32_t*>(src), n,
                    count);
    case DType::kInt64:
      return divide(static_cast<std::int64_t*>(dst), static_cast<const std::int64_t*>(src), n,
                    count);
    case DType::kFloat16:
    case DType::kBFloat16:
      return table().scale_half[type == DType::kBFloat16](dst, src, n, count);
  }
}

const char* kernel_isa() noexcept { return table().isa; }

}  // namespace weft
