// Element types, reduction operators and collectives, by the names users type.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string_view>

namespace weft {

enum class DType : std::uint8_t { kFloat32, kFloat64, kInt32, kInt64, kFloat16, kBFloat16 };
enum class RedOp : std::uint8_t { kSum, kMin, kMax, kAvg };
enum class Collective : std::uint8_t {
  kAllReduce,
  kAllGather,
  kReduceScatter,
  kBroadcast,
  kBarrier,
  kSendRecv
};

inline constexpr DType kAllDTypes[] = {DType::kFloat32, DType::kFloat64, DType::kInt32,
                                       DType::kInt64,   DType::kFloat16, DType::kBFloat16};
inline constexpr RedOp kAllRedOps[] = {RedOp::kSum, RedOp::kMin, RedOp::kMax, RedOp::kAvg};

constexpr std::size_t size_of(DType t) {
  switch (t) {
    case DType::kFloat64:
    case DType::kInt64:
      return 8;
    case DType::kFloat16:
    case DType::kBFloat16:
      return 2;
    default:
      return 4;
  }
}

// "float", "double", "int32", "int64", "half", "bfloat16" (nccl-tests' names; "float32" ... too)
const char* name(DType t);
const char* name(RedOp op);
const char* name(Collective c);  // "all_reduce", ...
std::optional<DType> dtype_from(std::string_view text);
std::optional<RedOp> redop_from(std::string_view text);
std::optional<Collective> collective_from(std::string_view text);

}  // namespace weft
