// Reads Chakra execution traces; built only where protobuf was found. Knows no other format.
#include <fmt/format.h>
#include <google/protobuf/io/coded_stream.h>

#include <cstdint>
#include <iterator>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "chakra.pb.h"
#include "coll/jobs/chakra.h"
#include "perf/replay/read.h"
#include "topo/base/status.h"

namespace weft::replay {
namespace {

using google::protobuf::io::CodedInputStream;

// A message with its length in front. Returns false at the end of the file.
bool read_delimited(CodedInputStream& in, const TraceFile& file,
                    google::protobuf::MessageLite& message) {
  const int at = in.CurrentPosition(), size = static_cast<int>(file.bytes.size());
  if (at >= size) return false;
  std::uint32_t length = 0;
  if (!in.ReadVarint32(&length) || length > static_cast<std::uint32_t>(size - in.CurrentPosition()))
    throw Error(fmt::format("{}: cut off: the message at byte {} has {} bytes, and {} are left",
                            file.name, at, length, size - in.CurrentPosition()));
  const auto limit = in.PushLimit(static_cast<int>(length));
  if (!message.ParseFromCodedStream(&in) || !in.ConsumedEntireMessage())
    throw Error(
        fmt::format("{}: the message at byte {} is not one of a Chakra trace", file.name, at));
  in.PopLimit(limit);
  return true;
}

std::optional<std::int64_t> number(const chakra::Attribute& a) {
  switch (a.value_case()) {
    case chakra::Attribute::kInt32Val:
      return a.int32_val();
    case chakra::Attribute::kInt64Val:
      return a.int64_val();
    case chakra::Attribute::kUint32Val:
      return a.uint32_val();
    case chakra::Attribute::kUint64Val:
      return static_cast<std::int64_t>(a.uint64_val());
    case chakra::Attribute::kSint32Val:
      return a.sint32_val();
    case chakra::Attribute::kSint64Val:
      return a.sint64_val();
    default:
      return {};
  }
}

class NodeReader {
 public:
  NodeReader(const TraceFile& file, const chakra::Node& node) : file_(file), node_(node) {}

  std::optional<std::int64_t> find(std::string_view name) const {
    for (const chakra::Attribute& a : node_.attributes())
      if (a.name() == name) {
        const auto value = number(a);
        if (!value || *value < 0)
          throw Error(fmt::format("{}: node {} ({}): {} is no number from 0 on", file_.name,
                                  node_.id(), node_.name(), name));
        return value;
      }
    return {};
  }
  std::int64_t need(std::string_view name) const {
    if (const auto value = find(name)) return *value;
    throw Error(
        fmt::format("{}: node {} ({}) has no {}", file_.name, node_.id(), node_.name(), name));
  }
  std::string text(std::string_view name) const {
    for (const chakra::Attribute& a : node_.attributes())
      if (a.name() == name)
        return a.value_case() == chakra::Attribute::kStringVal ? a.string_val()
                                                               : std::to_string(need(name));
    return "";
  }

 private:
  const TraceFile& file_;
  const chakra::Node& node_;
};

void read_collective(const TraceFile& file, const chakra::Node& from, TraceNode& node) {
  const NodeReader read(file, from);
  const auto type = static_cast<std::size_t>(read.need(chakra::kCommType));
  if (type >= std::size(chakra::kCollectiveOf))
    throw Error(fmt::format("{}: node {} ({}): comm_type {} is no collective that weft knows",
                            file.name, from.id(), from.name(), type));
  node.kind = NodeKind::kCollective;
  node.collective = chakra::kCollectiveOf[type];
  node.bytes = node.collective == Collective::kBarrier
                   ? 0
                   : static_cast<std::uint64_t>(read.need(chakra::kCommSize));
  node.is_whole = false;
  if (const auto whole = read.find(chakra::kWholeBytes)) {
    node.bytes = static_cast<std::uint64_t>(*whole);
    node.is_whole = true;
  }
  node.group_name = read.text(chakra::kGroupName);
  node.root = static_cast<Rank>(read.find(chakra::kRoot).value_or(0));
}

}  // namespace

RankTrace read_chakra(const TraceFile& file) {
  RankTrace trace;
  trace.file = file.name;
  trace.rank = file.rank;
  CodedInputStream in(reinterpret_cast<const std::uint8_t*>(file.bytes.data()),
                      static_cast<int>(file.bytes.size()));
  chakra::Metadata metadata;
  read_delimited(in, file, metadata);
  if (metadata.version() != chakra::kVersion)
    throw Error(fmt::format("{}: version '{}' of Chakra; weft reads {}", file.name,
                            metadata.version(), chakra::kVersion));
  for (const chakra::Attribute& a : metadata.attributes())
    if (a.name().starts_with(chakra::kMember))
      trace.member_of[a.name().substr(chakra::kMember.size())] =
          static_cast<int>(number(a).value_or(0));
  chakra::Node from;
  while (read_delimited(in, file, from)) {
    TraceNode& node = trace.nodes.emplace_back();
    node.id = from.id();
    node.name = from.name();
    node.after_ids.assign(from.ctrl_deps().begin(), from.ctrl_deps().end());
    node.after_ids.insert(node.after_ids.end(), from.data_deps().begin(), from.data_deps().end());
    const NodeReader read(file, from);
    switch (static_cast<chakra::Type>(from.type())) {
      case chakra::Type::kCompute:
        node.compute_us = static_cast<double>(from.duration_micros());
        trace.untimed += from.duration_micros() == 0;
        break;
      case chakra::Type::kSend:
      case chakra::Type::kRecv: {
        const bool sends = static_cast<chakra::Type>(from.type()) == chakra::Type::kSend;
        node.kind = sends ? NodeKind::kSend : NodeKind::kRecv;
        node.peer = static_cast<Rank>(read.need(sends ? chakra::kCommDst : chakra::kCommSrc));
        node.bytes = static_cast<std::uint64_t>(read.need(chakra::kCommSize));
        break;
      }
      case chakra::Type::kCollective:
        read_collective(file, from, node);
        break;
      case chakra::Type::kMetadata:
        break;
      case chakra::Type::kMemoryLoad:
      case chakra::Type::kMemoryStore:
        node.compute_us = static_cast<double>(from.duration_micros());
        ++trace.left_out[from.type() == 2 ? "memory load (its time is kept)"
                                          : "memory store (its time is kept)"];
        break;
      default:
        ++trace.left_out[fmt::format("node of type {}", from.type())];
    }
    const std::string type = read.text(chakra::kDataType);
    if (const auto known = dtype_from(type)) {
      node.type = *known;
    } else if (!type.empty()) {
      throw Error(fmt::format("{}: node {}: {} '{}' is no type of weft", file.name, node.id,
                              chakra::kDataType, type));
    } else if (node.bytes % size_of(node.type) != 0) {
      node.type = DType::kUInt8;
    }
  }
  return trace;
}

}  // namespace weft::replay
