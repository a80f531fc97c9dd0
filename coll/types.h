// Element types, reduction operators and collectives, and their names in options.
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
  kAvg,        // the sum divided by the number of ranks; integers round towards zero. Not for bool
  kProd,       // integers wrap around; bool: and
  kPreMulSum,  // the sum of the ranks' values times their factors (premul_sum()). Not for bool
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

// How a compressed collective writes values between ranks (Communicator::compressed()).
enum class Codec : std::uint8_t {
  kNone,
  kInt8,  // 8-bit integers, with a scale for each block
  kFp8    // 8-bit floats (e4m3 of the OCP's specification), with a scale for each block
};

inline constexpr DType kAllDTypes[] = {
    DType::kFloat32,  DType::kFloat64, DType::kInt32, DType::kInt64, DType::kFloat16,
    DType::kBFloat16, DType::kInt8,    DType::kUInt8, DType::kInt16, DType::kUInt16,
    DType::kUInt32,   DType::kUInt64,  DType::kBool};
inline constexpr RedOp kAllRedOps[] = {RedOp::kSum,    RedOp::kMin,   RedOp::kMax,
                                       RedOp::kAvg,    RedOp::kProd,  RedOp::kPreMulSum,
                                       RedOp::kBitAnd, RedOp::kBitOr, RedOp::kBitXor};
inline constexpr int kDTypes = 13, kRedOps = 9, kCollectives = 10;

// A reduction operator and its factor. Every RedOp converts to a Reduction.
struct Reduction {
  RedOp op = RedOp::kSum;
  double factor = 1;  // kPreMulSum: the factor of this rank's values; ranks may pass different ones
  constexpr Reduction(RedOp o) : op(o) {}  // NOLINT: implicit, so that calls take a RedOp
  constexpr Reduction(RedOp o, double f) : op(o), factor(f) {}
};
// out = sum of factor * in. Integer types need an integer factor; fp16 and bf16 values are
// multiplied in fp32, and the product is rounded.
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
// Whether calls accept the operator for elements of the type.
constexpr bool defined(RedOp op, DType t) {
  if (is_bitwise(op)) return !is_floating(t);
  return t != DType::kBool || (op != RedOp::kAvg && op != RedOp::kPreMulSum);
}

// Whether the collective combines the values of several ranks.
constexpr bool reduces(Collective c) {
  return c == Collective::kAllReduce || c == Collective::kReduceScatter || c == Collective::kReduce;
}
// Whether one rank of the collective is the root.
constexpr bool rooted(Collective c) {
  return c == Collective::kBroadcast || c == Collective::kReduce || c == Collective::kGather ||
         c == Collective::kScatter;
}
// Whether a buffer of the collective has one block per rank.
constexpr bool by_blocks(Collective c) {
  return c == Collective::kAllGather || c == Collective::kReduceScatter ||
         c == Collective::kGather || c == Collective::kScatter || c == Collective::kAllToAll;
}

// nccl-tests' names: "float", "double", "int32", "half", ...; dtype_from() also takes "float32".
const char* name(DType t);
const char* name(RedOp op);
const char* name(Collective c);  // "all_reduce", ...
const char* name(Codec c);       // "none", "int8", "fp8"
std::optional<DType> dtype_from(std::string_view text);
std::optional<RedOp> redop_from(std::string_view text);
std::optional<Collective> collective_from(std::string_view text);
std::optional<Codec> codec_from(std::string_view text);

}  // namespace weft
