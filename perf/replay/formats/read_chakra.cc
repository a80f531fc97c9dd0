// Interprets the nodes of a Chakra trace, and reads its JSON form. Does not need protobuf.
#include <fmt/format.h>

#include <iterator>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "coll/jobs/chakra.h"
#include "perf/replay/formats/chakra_node.h"
#include "perf/replay/formats/read.h"
#include "topo/base/status.h"

namespace weft::replay {
namespace {

std::string named(const ChakraNode& node) {
  return fmt::format("node {} ({})", node.id, node.name);
}

std::optional<std::uint64_t> find(const ChakraNode& node, std::string_view name,
                                  const RankTrace& trace) {
  const auto it = node.numbers.find(name);
  if (it == node.numbers.end()) return {};
  if (it->second < 0)
    throw Error(fmt::format("{}: {}: {} {} is not a number from 0 up", trace.file, named(node),
                            name, it->second));
  return static_cast<std::uint64_t>(it->second);
}

// Returns the size of a message. Chakra's generator writes only tensor_size.
std::optional<std::uint64_t> size_of(const ChakraNode& node, const RankTrace& trace) {
  const auto size = find(node, chakra::kCommSize, trace);
  return size ? size : find(node, chakra::kTensorSize, trace);
}

std::string group_of(const ChakraNode& node) {
  if (const auto text = node.texts.find(chakra::kGroupName); text != node.texts.end())
    return text->second;
  const auto number = node.numbers.find(chakra::kGroupName);
  return number == node.numbers.end() ? "" : std::to_string(number->second);
}

// Returns whether the call is played; otherwise keeps its time as a computation.
bool read_collective(const ChakraNode& from, RankTrace& trace, TraceNode& node) {
  const auto type = find(from, chakra::kCommType, trace);
  const auto size = find(from, chakra::kCommSize, trace);
  const auto whole = find(from, chakra::kWholeBytes, trace);
  const bool barrier = type && *type < std::size(chakra::kCollectiveOf) &&
                       chakra::kCollectiveOf[*type] == Collective::kBarrier;
  if (!type || (!size && !whole && !barrier)) {
    ++trace.left_out[fmt::format("collective without {} (its time is kept)",
                                 type ? chakra::kCommSize : chakra::kCommType)];
    return false;
  }
  if (*type >= std::size(chakra::kCollectiveOf))
    throw Error(fmt::format("{}: {}: comm_type {} is not a collective that weft supports",
                            trace.file, named(from), *type));
  node.collective = chakra::kCollectiveOf[*type];
  node.bytes = barrier ? 0 : whole.value_or(size.value_or(0));
  if (!barrier && node.bytes == 0) {
    ++trace.left_out[fmt::format("{} of 0 bytes", name(node.collective))];
    return false;
  }
  node.kind = NodeKind::kCollective;
  node.is_whole = whole.has_value();
  node.group_name = group_of(from);
  node.root = static_cast<Rank>(find(from, chakra::kRoot, trace).value_or(0));
  return true;
}

bool read_message(const ChakraNode& from, bool sends, RankTrace& trace, TraceNode& node) {
  const auto peer = find(from, sends ? chakra::kCommDst : chakra::kCommSrc, trace);
  const auto size = size_of(from, trace);
  const char* lacks = !peer ? "a peer" : !size ? "a size" : *size == 0 ? "bytes" : nullptr;
  if (lacks != nullptr) {
    ++trace.left_out[fmt::format("{} without {} (its time is kept)", sends ? "send" : "recv",
                                 lacks)];
    return false;
  }
  node.kind = sends ? NodeKind::kSend : NodeKind::kRecv;
  node.peer = static_cast<Rank>(*peer);
  node.bytes = *size;
  node.tag = static_cast<std::int64_t>(find(from, chakra::kCommTag, trace).value_or(0));
  return true;
}

void read_type(const ChakraNode& from, TraceNode& node) {
  if (const auto text = from.texts.find(chakra::kDataType); text != from.texts.end())
    if (const auto known = dtype_from(text->second)) {
      node.type = *known;
      return;
    }
  if (node.bytes % weft::size_of(node.type) != 0) node.type = DType::kUInt8;
}

}  // namespace

void add_process_groups(const std::string& text, RankTrace& trace) {
  const auto list = nlohmann::json::parse(text, nullptr, false);
  if (!list.is_array()) {  // PyTorch truncates long texts
    ++trace.left_out["list of process groups that is cut off: --groups FILE names groups"];
    return;
  }
  for (const auto& group : list) {
    if (!group.is_object()) continue;
    const auto word = [&](const char* key) {
      const auto it = group.find(key);
      return it == group.end() ? std::string()
             : it->is_string() ? it->get<std::string>()
                               : it->dump();
    };
    const std::string group_name = word("pg_name"), title = word("pg_desc");
    auto ranks = group.value("ranks", std::vector<Rank>());
    const int size = ranks.empty() ? group.value("group_size", 0) : static_cast<int>(ranks.size());
    const bool all = ranks.empty() || title == "default_pg";
    if (all) trace.job_ranks = std::max(trace.job_ranks, size);
    for (const Rank rank : ranks)
      if (rank < kMostRanks) trace.job_ranks = std::max(trace.job_ranks, rank + 1);
    trace.group_sizes[group_name] = size;
    if (!title.empty() && title != "undefined" && !all) trace.titles[group_name] = title;
    if (!ranks.empty()) trace.groups[group_name] = std::move(ranks);
  }
}

void add_chakra_node(const ChakraNode& from, RankTrace& trace) {
  using chakra::Type;
  TraceNode& node = trace.nodes.emplace_back();
  node.id = from.id;
  node.name = from.name;
  node.after_ids = from.after;
  bool computes = false;
  switch (static_cast<Type>(from.type)) {
    case Type::kCompute:
      computes = true;
      trace.untimed += from.us == 0;
      break;
    case Type::kSend:
    case Type::kRecv:
      computes = !read_message(from, static_cast<Type>(from.type) == Type::kSend, trace, node);
      break;
    case Type::kCollective:
      computes = !read_collective(from, trace, node);
      break;
    case Type::kMetadata:
      // PyTorch's converter writes ['[{"pg_name": ...}, ...]'].
      if (from.name.find("process_group:init") != std::string::npos)
        if (const auto begin = from.inputs.find("[{"), end = from.inputs.rfind("}]");
            begin != std::string::npos && end != std::string::npos && begin < end)
          add_process_groups(from.inputs.substr(begin, end + 2 - begin), trace);
      break;
    case Type::kMemoryLoad:
    case Type::kMemoryStore:
      computes = true;
      ++trace.left_out[static_cast<Type>(from.type) == Type::kMemoryLoad
                           ? "memory load (its time is kept)"
                           : "memory store (its time is kept)"];
      break;
    default:
      ++trace.left_out[fmt::format("node of type {}", from.type)];
  }
  if (computes) node.compute_us = static_cast<double>(from.us);
  read_type(from, node);
}

RankTrace read_chakra_json(const TraceFile& file) {
  using nlohmann::json;
  RankTrace trace;
  trace.file = file.name;
  trace.rank = file.rank;
  trace.sends_are_eager = true;
  try {
    const json all = json::parse(file.bytes);
    for (const json& from : all.at("workload_graph")) {
      ChakraNode node;
      node.id = from.at("Id").get<std::uint64_t>();
      node.name = from.value("Name", "");
      node.type = from.at("NodeType").get<std::uint64_t>();
      node.us = from.value("runtime", std::uint64_t{0});
      node.after = from.value("data_deps", std::vector<std::uint64_t>());
      for (const auto& [key, value] : from.items())
        if (value.is_number_integer() || value.is_boolean())
          node.numbers[key] = value.is_boolean() ? value.get<bool>() : value.get<std::int64_t>();
        else if (value.is_string())
          node.texts[key] = value.get<std::string>();
      add_chakra_node(node, trace);
    }
    return trace;
  } catch (const json::parse_error& e) {
    throw Error(fmt::format("{}: cut off or damaged: {}", file.name, e.what()));
  } catch (const json::exception& e) {
    throw Error(fmt::format("{}: not as Chakra's JSON is: {}", file.name, e.what()));
  }
}

}  // namespace weft::replay
