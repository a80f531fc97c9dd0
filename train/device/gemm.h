// Matrix products on a device: cuBLASLt on a GPU (cuda_gemm.cc), OpenBLAS on the fake device and
// for 16-bit elements on the CPU.
#pragma once

#include <cstddef>
#include <cstdint>
#include <tuple>

#include "coll/types.h"
#include "transport/gpu/device.h"

namespace weft::train {

// c = a b + beta c + bias, row-major, like gemm() of operators.h. 16-bit products accumulate in
// fp32, fp32 products do not use TF32.
struct DeviceGemm {
  DType type = DType::kFloat32;
  bool transpose_a = false, transpose_b = false;
  std::size_t m = 0, n = 0, k = 0;
  double beta = 0;
  const void* a = nullptr;
  const void* b = nullptr;
  void* c = nullptr;
  const void* bias = nullptr;  // n elements that are added to every row; null: no bias
  std::size_t a_stride = 0, b_stride = 0, c_stride = 0;
  void* scratch = nullptr;  // DeviceContext::product_scratch()
};

// Returns whether the launched product adds the bias; otherwise the caller must add it.
bool gemm_adds_bias(const DeviceGemm& gemm);

// All inputs of cuBLASLt's choice of a kernel: type, sizes, strides, alignment. Products with equal
// keys run the same kernel.
using ProductKey =
    std::tuple<DType, bool, bool, std::size_t, std::size_t, std::size_t, std::size_t, std::size_t,
               std::size_t, bool, std::uint32_t, std::uint32_t, std::uint32_t>;
ProductKey key_of(const DeviceGemm& gemm);

// Returns the work of a product. `gemm` must outlive the returned work; launching copies `gemm`.
DeviceWork device_work(const DeviceGemm& gemm);

// Computes the product in host memory, and adds the bias.
void multiply_on_host(const DeviceGemm& gemm);

namespace detail {
int launch_gemm(const void* args, void* stream);  // cuda_gemm.cc
}

}  // namespace weft::train
