// Products as device work, and on the fake device. Does not depend on cuBLASLt.
#include "train/device/gemm.h"

#include <algorithm>
#include <cstdint>
#include <vector>

#include "train/device/kernel.h"
#include "train/operators/operators.h"

namespace weft::train {
namespace {

template <class E>
void multiply(const DeviceGemm& g) {
  using S = typename E::Stored;
  using V = typename E::Value;
  using Codec = kernels::Codec<E>;
  const auto widened = [](const void* from, std::size_t rows, std::size_t columns,
                          std::size_t stride) {
    std::vector<V> to(rows * columns);
    for (std::size_t r = 0; r < rows; ++r)
      for (std::size_t i = 0; i < columns; ++i)
        to[r * columns + i] = Codec::widen(static_cast<const S*>(from)[r * stride + i]);
    return to;
  };
  const std::size_t a_rows = g.transpose_a ? g.k : g.m, a_columns = g.transpose_a ? g.m : g.k;
  const std::size_t b_rows = g.transpose_b ? g.n : g.k, b_columns = g.transpose_b ? g.k : g.n;
  const auto a = widened(g.a, a_rows, a_columns, g.a_stride);
  const auto b = widened(g.b, b_rows, b_columns, g.b_stride);
  S* c = static_cast<S*>(g.c);
  // With beta 0 the output may contain NaN: BLAS must not read it.
  auto sum = g.beta != 0 ? widened(c, g.m, g.n, g.c_stride) : std::vector<V>(g.m * g.n);
  gemm<V>(g.transpose_a, g.transpose_b, g.m, g.n, g.k, 1, a.data(), a_columns, b.data(), b_columns,
          static_cast<V>(g.beta), sum.data(), g.n);
  for (std::size_t r = 0; r < g.m; ++r)
    for (std::size_t j = 0; j < g.n; ++j) {
      V x = sum[r * g.n + j];
      if (g.bias != nullptr) x += Codec::widen(static_cast<const S*>(g.bias)[j]);
      c[r * g.c_stride + j] = Codec::narrow(x);
    }
}

void run_here(const void* args, void* (*local)(const void*)) {
  DeviceGemm g = *static_cast<const DeviceGemm*>(args);
  g.a = local(g.a);
  g.b = local(g.b);
  g.c = local(g.c);
  g.bias = local(g.bias);
  multiply_on_host(g);
}

}  // namespace

void multiply_on_host(const DeviceGemm& g) {
  switch (g.type) {
    case DType::kFloat64:
      return multiply<Fp64>(g);
    case DType::kFloat32:
      return multiply<Fp32>(g);
    case DType::kBFloat16:
      return multiply<Bf16>(g);
    default:
      return multiply<Fp16>(g);
  }
}

// cuBLASLt adds the bias for 16-bit types, and reads the vector in 16-byte words.
bool gemm_adds_bias(const DeviceGemm& g) {
  return (g.type == DType::kBFloat16 || g.type == DType::kFloat16) &&
         reinterpret_cast<std::uintptr_t>(g.bias) % 16 == 0;
}

ProductKey key_of(const DeviceGemm& g) {
  const std::size_t size = size_of(g.type);
  // At most 256 bytes.
  const auto alignment = [&](const void* p, std::size_t stride) {
    const std::uintptr_t all = reinterpret_cast<std::uintptr_t>(p) | stride * size | 256;
    return static_cast<std::uint32_t>(all & (~all + 1));
  };
  return {g.type,
          g.transpose_a,
          g.transpose_b,
          g.m,
          g.n,
          g.k,
          g.a_stride,
          g.b_stride,
          g.c_stride,
          g.bias != nullptr,
          alignment(g.a, g.a_stride),
          alignment(g.b, g.b_stride),
          alignment(g.c, g.c_stride)};
}

DeviceWork device_work(const DeviceGemm& gemm) {
  DeviceWork work;
#ifdef WEFT_HAVE_CUDA
  work.launch = detail::launch_gemm;
#endif
  work.run = run_here;
  work.args = &gemm;
  work.bytes = sizeof gemm;
  work.title = "product";
  std::apply(
      [&](auto... part) {
        ((work.code = work.code * 1099511628211u + static_cast<std::uint64_t>(part)), ...);
      },
      key_of(gemm));
  return work;
}

}  // namespace weft::train
