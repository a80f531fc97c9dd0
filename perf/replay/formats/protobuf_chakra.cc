// Reads Chakra execution traces; built only if protobuf was found. Does not depend on other
// formats.
#include <fmt/format.h>
#include <google/protobuf/io/coded_stream.h>

#include <array>
#include <cstdint>
#include <cstdio>
#include <optional>
#include <string>
#include <string_view>

#include "chakra.pb.h"
#include "coll/jobs/chakra.h"
#include "perf/replay/formats/chakra_node.h"
#include "perf/replay/formats/read.h"
#include "topo/base/status.h"

namespace weft::replay {
namespace {

using google::protobuf::io::CodedInputStream;

// Reads a length-prefixed message. Returns false at the end of the file.
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
    case chakra::Attribute::kFixed32Val:
      return a.fixed32_val();
    case chakra::Attribute::kFixed64Val:
      return static_cast<std::int64_t>(a.fixed64_val());
    case chakra::Attribute::kSfixed32Val:
      return a.sfixed32_val();
    case chakra::Attribute::kSfixed64Val:
      return a.sfixed64_val();
    default:
      return {};
  }
}

// "1.0.2-chakra.0.0.4": "0.0.4"
std::string version_of(const chakra::Metadata& metadata) {
  if (!metadata.version().empty()) return metadata.version();
  for (const chakra::Attribute& a : metadata.attributes())
    if (a.name() == chakra::kSchema) {
      const std::string_view mark = "chakra.";
      const auto at = a.string_val().find(mark);
      return at == std::string::npos ? a.string_val() : a.string_val().substr(at + mark.size());
    }
  return "";
}

// Accepts files without a version: Chakra's own feeder does not check versions.
void check_version(const TraceFile& file, const chakra::Metadata& metadata) {
  const std::string version = version_of(metadata);
  std::array<int, 3> number = {0, 0, 4};
  if (!version.empty() &&
      std::sscanf(version.c_str(), "%d.%d.%d", &number[0], &number[1], &number[2]) != 3)
    number = {};
  if (number < std::array{0, 0, 4} || number[0] > 1)
    throw Error(
        fmt::format("{}: version '{}' of Chakra; weft reads 0.0.4 to 1", file.name, version));
}

// Chakra's ctrl_deps name the operator that called the node; the feeder waits for data_deps only.
ChakraNode plain(const chakra::Node& from, bool waits_for_control) {
  ChakraNode node;
  node.id = from.id();
  node.name = from.name();
  node.type = from.type();
  node.us = from.duration_micros();
  node.after.assign(from.data_deps().begin(), from.data_deps().end());
  if (waits_for_control)
    node.after.insert(node.after.end(), from.ctrl_deps().begin(), from.ctrl_deps().end());
  node.inputs = from.inputs().values();
  for (const chakra::Attribute& a : from.attributes())
    if (a.value_case() == chakra::Attribute::kStringVal)
      node.texts[a.name()] = a.string_val();
    else if (const auto value = number(a))
      node.numbers[a.name()] = *value;
  return node;
}

}  // namespace

RankTrace read_chakra(const TraceFile& file) {
  RankTrace trace;
  trace.file = file.name;
  trace.rank = file.rank;
  trace.sends_are_eager = true;
  CodedInputStream in(reinterpret_cast<const std::uint8_t*>(file.bytes.data()),
                      static_cast<int>(file.bytes.size()));
  chakra::Metadata metadata;
  read_delimited(in, file, metadata);
  check_version(file, metadata);
  for (const chakra::Attribute& a : metadata.attributes())
    if (a.name().starts_with(chakra::kMember)) {
      const std::string group = a.name().substr(chakra::kMember.size());
      trace.member_of[group] = static_cast<int>(number(a).value_or(0));
    }
  // weft 0.2.0 wrote the dependencies of computations as ctrl_deps.
  const bool ours = !trace.member_of.empty();
  chakra::Node from;
  while (read_delimited(in, file, from)) add_chakra_node(plain(from, ours), trace);
  return trace;
}

}  // namespace weft::replay
