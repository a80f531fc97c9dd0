// The tables of names of element types, operators and collectives.
#include "coll/types.h"

#include <array>
#include <utility>

namespace weft {
namespace {

template <class T, std::size_t N>
std::optional<T> find(const std::array<std::pair<std::string_view, T>, N>& table,
                      std::string_view text) {
  for (const auto& [key, value] : table)
    if (key == text) return value;
  return std::nullopt;
}

// The first name of a value is the one that name() prints.
constexpr std::array<std::pair<std::string_view, DType>, 18> kDTypeNames{
    {{"float", DType::kFloat32},
     {"double", DType::kFloat64},
     {"int32", DType::kInt32},
     {"int64", DType::kInt64},
     {"half", DType::kFloat16},
     {"bfloat16", DType::kBFloat16},
     {"int8", DType::kInt8},
     {"uint8", DType::kUInt8},
     {"int16", DType::kInt16},
     {"uint16", DType::kUInt16},
     {"uint32", DType::kUInt32},
     {"uint64", DType::kUInt64},
     {"bool", DType::kBool},
     {"float32", DType::kFloat32},
     {"float64", DType::kFloat64},
     {"float16", DType::kFloat16},
     {"fp16", DType::kFloat16},
     {"bf16", DType::kBFloat16}}};
constexpr std::array<std::pair<std::string_view, RedOp>, 13> kRedOpNames{
    {{"sum", RedOp::kSum},
     {"min", RedOp::kMin},
     {"max", RedOp::kMax},
     {"avg", RedOp::kAvg},
     {"prod", RedOp::kProd},
     {"premul_sum", RedOp::kPreMulSum},
     {"bit_and", RedOp::kBitAnd},
     {"bit_or", RedOp::kBitOr},
     {"bit_xor", RedOp::kBitXor},
     {"mulsum", RedOp::kPreMulSum},
     {"band", RedOp::kBitAnd},
     {"bor", RedOp::kBitOr},
     {"bxor", RedOp::kBitXor}}};
constexpr std::array<std::pair<std::string_view, Collective>, 14> kCollectiveNames{
    {{"all_reduce", Collective::kAllReduce},
     {"all_gather", Collective::kAllGather},
     {"reduce_scatter", Collective::kReduceScatter},
     {"broadcast", Collective::kBroadcast},
     {"barrier", Collective::kBarrier},
     {"sendrecv", Collective::kSendRecv},
     {"reduce", Collective::kReduce},
     {"gather", Collective::kGather},
     {"scatter", Collective::kScatter},
     {"all_to_all", Collective::kAllToAll},
     {"allreduce", Collective::kAllReduce},
     {"allgather", Collective::kAllGather},
     {"alltoall", Collective::kAllToAll},
     {"reducescatter", Collective::kReduceScatter}}};

constexpr std::array<std::pair<std::string_view, Codec>, 3> kCodecNames{
    {{"none", Codec::kNone}, {"int8", Codec::kInt8}, {"fp8", Codec::kFp8}}};

template <class T, std::size_t N>
const char* first(const std::array<std::pair<std::string_view, T>, N>& table, T value) {
  for (const auto& [key, v] : table)
    if (v == value) return key.data();
  return "?";
}

}  // namespace

const char* name(DType t) { return first(kDTypeNames, t); }
const char* name(RedOp op) { return first(kRedOpNames, op); }
const char* name(Collective c) { return first(kCollectiveNames, c); }
const char* name(Codec c) { return first(kCodecNames, c); }
std::optional<DType> dtype_from(std::string_view text) { return find(kDTypeNames, text); }
std::optional<RedOp> redop_from(std::string_view text) { return find(kRedOpNames, text); }
std::optional<Collective> collective_from(std::string_view text) {
  return find(kCollectiveNames, text);
}
std::optional<Codec> codec_from(std::string_view text) { return find(kCodecNames, text); }

}  // namespace weft
