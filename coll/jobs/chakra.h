// The constants and attribute names of Chakra traces, shared by the reader and the writer.
#pragma once

#include <string_view>

#include "coll/types.h"

namespace weft::chakra {

// The version that weft writes, as Chakra's generator does since 2026. The fields are those of
// 0.0.4.
inline constexpr std::string_view kVersion = "1.0.0";

// Node.type.
enum class Type : unsigned {
  kMetadata = 1,
  kMemoryLoad = 2,
  kMemoryStore = 3,
  kCompute = 4,
  kSend = 5,
  kRecv = 6,
  kCollective = 7
};

// Collectives by the value of a node's attribute comm_type; 8 is also reduce_scatter.
inline constexpr Collective kCollectiveOf[] = {
    Collective::kAllReduce, Collective::kReduce,        Collective::kAllGather,
    Collective::kGather,    Collective::kScatter,       Collective::kBroadcast,
    Collective::kAllToAll,  Collective::kReduceScatter, Collective::kReduceScatter,
    Collective::kBarrier};

// Names of a node's attributes. Chakra's feeder reads each attribute from the field of one type:
// comm_type and comm_size from int64, comm_src, comm_dst and comm_tag from int32, tensor_size from
// uint64, is_cpu_op from bool. The last two attributes are weft's own.
inline constexpr std::string_view kCommType = "comm_type", kCommSize = "comm_size",
                                  kTensorSize = "tensor_size", kCommSrc = "comm_src",
                                  kCommDst = "comm_dst", kCommTag = "comm_tag",
                                  kIsCpu = "is_cpu_op", kGroupName = "pg_name", kRoot = "root";
inline constexpr std::string_view kDataType = "weft_dtype";    // as returned by weft::name()
inline constexpr std::string_view kWholeBytes = "weft_bytes";  // size of the whole message
// Attributes of the metadata. "schema" contains the version if no other field does
// ("1.0.2-chakra.0.0.4"). "weft_member/NAME" is the size of the group NAME, to which the file's
// rank belongs; the group consists of the ranks of all files with this attribute.
inline constexpr std::string_view kSchema = "schema", kMember = "weft_member/";

}  // namespace weft::chakra
