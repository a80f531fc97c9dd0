// Element types, reduction operators and collectives, by the names users type.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string_view>

namespace weft {

enum class DType : std::uint8_t {
  kFloat32,
  kFloat64,
  kInt32,
  kInt64,
  kFloat16,
  kBFloat16,
  kInt8,
  kUInt8,
  kInt16,
  kUInt16,
  kUInt32,
  kUInt64,
  kBool  // one byte, 0 or 1
};
enum class RedOp : std::uint8_t {
  kSum,        // integers wrap around; bool: or
  kMin,        // bool: and
  kMax,        // bool: or
  kAvg,        // the sum, then divided by the number of ranks; integers towards zero. Not for bool
  kProd,       // integers wrap around; bool: and
  kPreMulSum,  // of what each rank gives times a factor of the call (premul_sum()). Not for bool
  kBitAnd,     // bitwise: integers and bool
  kBitOr,
  kBitXor
};
enum class Collective : std::uint8_t {
  kAllReduce,
  kAllGather,
  kReduceScatter,
  kBroadcast,
  kBarrier,
  kSendRecv,
  kReduce,
  kGather,
  kScatter,
  kAllToAll
};

inline constexpr DType kAllDTypes[] = {
    DType::kFloat32,  DType::kFloat64, DType::kInt32, DType::kInt64, DType::kFloat16,
    DType::kBFloat16, DType::kInt8,    DType::kUInt8, DType::kInt16, DType::kUInt16,
    DType::kUInt32,   DType::kUInt64,  DType::kBool};
inline constexpr RedOp kAllRedOps[] = {RedOp::kSum,    RedOp::kMin,   RedOp::kMax,
                                       RedOp::kAvg,    RedOp::kProd,  RedOp::kPreMulSum,
                                       RedOp::kBitAnd, RedOp::kBitOr, RedOp::kBitXor};
inline constexpr int kDTypes = 13, kRedOps = 9, kCollectives = 10;

// An operator and what belongs to it. Every RedOp is one.
struct Reduction {
  RedOp op = RedOp::kSum;
  double factor = 1;  // kPreMulSum; where it is another on each rank, each rank's own counts
  constexpr Reduction(RedOp o) : op(o) {}  // NOLINT: implicit, so that calls take a RedOp
  constexpr Reduction(RedOp o, double f) : op(o), factor(f) {}
};
// out = sum of factor * in. Integers are multiplied by the factor, which must be whole for them;
// fp16 and bf16 in fp32, then rounded.
constexpr Reduction premul_sum(double factor) { return {RedOp::kPreMulSum, factor}; }

constexpr std::size_t size_of(DType t) {
  switch (t) {
    case DType::kFloat64:
    case DType::kInt64:
    case DType::kUInt64:
      return 8;
    case DType::kFloat16:
    case DType::kBFloat16:
    case DType::kInt16:
    case DType::kUInt16:
      return 2;
    case DType::kInt8:
    case DType::kUInt8:
    case DType::kBool:
      return 1;
    default:
      return 4;
  }
}
constexpr bool is_floating(DType t) {
  return t == DType::kFloat32 || t == DType::kFloat64 || t == DType::kFloat16 ||
         t == DType::kBFloat16;
}
constexpr bool is_bitwise(RedOp op) {
  return op == RedOp::kBitAnd || op == RedOp::kBitOr || op == RedOp::kBitXor;
}
// Whether the operator means anything for the type.
constexpr bool defined(RedOp op, DType t) {
  if (is_bitwise(op)) return !is_floating(t);
  return t != DType::kBool || (op != RedOp::kAvg && op != RedOp::kPreMulSum);
}

// Collectives that combine values; those in which one rank is the root; those whose buffers are
// made of one block per rank.
constexpr bool reduces(Collective c) {
  return c == Collective::kAllReduce || c == Collective::kReduceScatter || c == Collective::kReduce;
}
constexpr bool rooted(Collective c) {
  return c == Collective::kBroadcast || c == Collective::kReduce || c == Collective::kGather ||
         c == Collective::kScatter;
}
constexpr bool by_blocks(Collective c) {
  return c == Collective::kAllGather || c == Collective::kReduceScatter ||
         c == Collective::kGather || c == Collective::kScatter || c == Collective::kAllToAll;
}

// "float", "double", "int32", "half", "bfloat16", "uint8", ... (nccl-tests' names; "float32" too)
const char* name(DType t);
const char* name(RedOp op);
const char* name(Collective c);  // "all_reduce", ...
std::optional<DType> dtype_from(std::string_view text);
std::optional<RedOp> redop_from(std::string_view text);
std::optional<Collective> collective_from(std::string_view text);

}  // namespace weft
