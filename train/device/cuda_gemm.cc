// Matrix products with cuBLASLt. Does not depend on operators.
//
// The first product loads the library, so that a program built with CUDA also runs without it. Each
// thread caches the description (types, sizes, alignment) and the selected algorithm of each
// product, since every step repeats the same products.
#include <cublasLt.h>
#include <cuda_runtime_api.h>
#include <dlfcn.h>
#include <fmt/format.h>

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <map>
#include <memory>
#include <string>
#include <tuple>
#include <vector>

#include "topo/base/status.h"
#include "train/device/context.h"
#include "train/device/gemm.h"

namespace weft::train {
namespace {

// The functions of the library: X(member of Library, symbol).
#define WEFT_CUBLASLT(X)                              \
  X(create, cublasLtCreate)                           \
  X(matmul, cublasLtMatmul)                           \
  X(choose, cublasLtMatmulAlgoGetHeuristic)           \
  X(make_operation, cublasLtMatmulDescCreate)         \
  X(set_operation, cublasLtMatmulDescSetAttribute)    \
  X(make_layout, cublasLtMatrixLayoutCreate)          \
  X(make_preference, cublasLtMatmulPreferenceCreate)  \
  X(free_preference, cublasLtMatmulPreferenceDestroy) \
  X(set_preference, cublasLtMatmulPreferenceSetAttribute)

struct Library {
#define WEFT_MEMBER(here, there) decltype(&there) here = nullptr;
  WEFT_CUBLASLT(WEFT_MEMBER)
#undef WEFT_MEMBER
};

Library open_library() {
  const std::string file = fmt::format("libcublasLt.so.{}", CUDART_VERSION / 1000);
  std::vector<std::string> places{file, WEFT_CUDA_LIBRARIES "/" + file};
  for (const char* home : {"CUDA_HOME", "CUDA_PATH"})
    if (const char* path = std::getenv(home))
      places.push_back(fmt::format("{}/lib64/{}", path, file));
  void* handle = nullptr;
  for (const std::string& place : places)
    if (handle == nullptr) handle = dlopen(place.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (handle == nullptr)
    throw Error(
        fmt::format("cuBLASLt: {} cannot be loaded ({}); install it, or add its folder to "
                    "LD_LIBRARY_PATH",
                    file, dlerror()));
  Library l;
  const auto find = [&](auto& function, const char* name) {
    function = reinterpret_cast<std::remove_reference_t<decltype(function)>>(dlsym(handle, name));
    if (function == nullptr)
      throw Error(fmt::format("cuBLASLt: {} has no {}; install that of CUDA {}", file, name,
                              CUDART_VERSION / 1000));
  };
#define WEFT_FIND(here, there) find(l.here, #there);
  WEFT_CUBLASLT(WEFT_FIND)
#undef WEFT_FIND
  return l;
}
const Library& library() {
  static const Library opened = open_library();
  return opened;
}

std::string describe(const DeviceGemm& g) {
  return fmt::format("{} x {} x {} of {}", g.m, g.n, g.k, name(g.type));
}
void check(cublasStatus_t status, const char* call, const DeviceGemm& g) {
  if (status == CUBLAS_STATUS_SUCCESS) return;
  throw Error(fmt::format("{} for {}: cuBLAS status {}; CUBLASLT_LOG_LEVEL=2 logs details", call,
                          describe(g), static_cast<int>(status)));
}

cudaDataType_t type_of(DType type) {
  switch (type) {
    case DType::kFloat64:
      return CUDA_R_64F;
    case DType::kFloat32:
      return CUDA_R_32F;
    case DType::kBFloat16:
      return CUDA_R_16BF;
    default:
      return CUDA_R_16F;
  }
}

// cuBLASLt is column-major: c^T = b^T a^T, so its first operand is b.
struct Plan {
  cublasLtMatmulDesc_t operation = nullptr;
  cublasLtMatrixLayout_t a = nullptr, b = nullptr, c = nullptr;
  cublasLtMatmulAlgo_t way{};
};
struct Planner {  // per thread; never freed
  cublasLtHandle_t handle = nullptr;
  std::map<ProductKey, Plan> plans;
};

Plan make_plan(const Library& l, cublasLtHandle_t handle, const DeviceGemm& g,
               const ProductKey& key) {
  const std::uint32_t a_aligned = std::get<10>(key), b_aligned = std::get<11>(key),
                      c_aligned = std::get<12>(key);
  Plan plan;
  const cudaDataType_t type = type_of(g.type);
  const bool wide = g.type == DType::kFloat64;
  check(l.make_operation(&plan.operation, wide ? CUBLAS_COMPUTE_64F : CUBLAS_COMPUTE_32F,
                         wide ? CUDA_R_64F : CUDA_R_32F),
        "cublasLtMatmulDescCreate", g);
  const auto set = [&](cublasLtMatmulDescAttributes_t what, auto value) {
    check(l.set_operation(plan.operation, what, &value, sizeof value),
          "cublasLtMatmulDescSetAttribute", g);
  };
  const auto turned = [](bool yes) {
    return static_cast<std::int32_t>(yes ? CUBLAS_OP_T : CUBLAS_OP_N);
  };
  set(CUBLASLT_MATMUL_DESC_TRANSA, turned(g.transpose_b));
  set(CUBLASLT_MATMUL_DESC_TRANSB, turned(g.transpose_a));
  if (g.bias != nullptr) {
    set(CUBLASLT_MATMUL_DESC_EPILOGUE, static_cast<std::uint32_t>(CUBLASLT_EPILOGUE_BIAS));
    set(CUBLASLT_MATMUL_DESC_BIAS_POINTER, g.bias);
  }
  const auto layout = [&](cublasLtMatrixLayout_t& to, std::size_t rows, std::size_t columns,
                          std::size_t stride) {
    // Our rows are cuBLASLt's columns.
    check(l.make_layout(&to, type, columns, rows, static_cast<std::int64_t>(stride)),
          "cublasLtMatrixLayoutCreate", g);
  };
  layout(plan.a, g.transpose_a ? g.k : g.m, g.transpose_a ? g.m : g.k, g.a_stride);
  layout(plan.b, g.transpose_b ? g.n : g.k, g.transpose_b ? g.k : g.n, g.b_stride);
  layout(plan.c, g.m, g.n, g.c_stride);

  cublasLtMatmulPreference_t preference = nullptr;
  check(l.make_preference(&preference), "cublasLtMatmulPreferenceCreate", g);
  const auto prefer = [&](cublasLtMatmulPreferenceAttributes_t what, auto value) {
    check(l.set_preference(preference, what, &value, sizeof value),
          "cublasLtMatmulPreferenceSetAttribute", g);
  };
  prefer(CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES,
         static_cast<std::uint64_t>(DeviceContext::kProductScratch));
  // Otherwise split-K partial sums may be rounded to 16 bits before they are added.
  prefer(CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK,
         static_cast<std::uint32_t>(CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE));
  prefer(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, b_aligned);
  prefer(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES, a_aligned);
  prefer(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, c_aligned);
  prefer(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES, c_aligned);
  cublasLtMatmulHeuristicResult_t chosen{};
  int found = 0;
  const cublasStatus_t status = l.choose(handle, plan.operation, plan.b, plan.a, plan.c, plan.c,
                                         preference, 1, &chosen, &found);
  l.free_preference(preference);
  check(status, "cublasLtMatmulAlgoGetHeuristic", g);
  if (found == 0 || chosen.state != CUBLAS_STATUS_SUCCESS)
    throw Error(fmt::format("cuBLASLt has no algorithm to multiply {}; try another shape or type",
                            describe(g)));
  plan.way = chosen.algo;
  return plan;
}

}  // namespace

namespace detail {

int launch_gemm(const void* args, void* stream) {
  const DeviceGemm& g = *static_cast<const DeviceGemm*>(args);
  if (g.m == 0 || g.n == 0) return 0;
  const Library& l = library();
  // The GPU of a thread never changes (DeviceContext), so its handle stays valid.
  thread_local Planner planner;
  if (planner.handle == nullptr) check(l.create(&planner.handle), "cublasLtCreate", g);
  const ProductKey key = key_of(g);
  auto plan = planner.plans.find(key);
  if (plan == planner.plans.end())
    plan = planner.plans.emplace(key, make_plan(l, planner.handle, g, key)).first;
  const Plan& p = plan->second;
  if (g.bias != nullptr)
    check(l.set_operation(p.operation, CUBLASLT_MATMUL_DESC_BIAS_POINTER, &g.bias, sizeof g.bias),
          "cublasLtMatmulDescSetAttribute", g);
  const double alpha = 1;
  const float alpha32 = 1, beta32 = static_cast<float>(g.beta);
  const auto factor = [&](const double& wide, const float& narrow) {
    return g.type == DType::kFloat64 ? static_cast<const void*>(&wide) : &narrow;
  };
  check(l.matmul(planner.handle, p.operation, factor(alpha, alpha32), g.b, p.b, g.a, p.a,
                 factor(g.beta, beta32), g.c, p.c, g.c, p.c, &p.way, g.scratch,
                 DeviceContext::kProductScratch, static_cast<cudaStream_t>(stream)),
        "cublasLtMatmul", g);
  return 0;
}

}  // namespace detail
}  // namespace weft::train
