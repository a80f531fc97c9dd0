// Reads PARAM / PyTorch execution traces, one JSON text per rank. This file does not depend on
// other formats.
//
// A rank's operators are played in the order of their ids, in which the process issued them: a call
// waits for the computation before it, and operators after a "wait" wait for its call.
#include <fmt/format.h>

#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "perf/replay/formats/chakra_node.h"
#include "perf/replay/formats/read.h"
#include "topo/base/status.h"

namespace weft::replay {
namespace {

using nlohmann::json;

// Returns a node's attribute: a field of the node (older schemas) or an entry of its list "attrs".
json attribute(const json& node, const char* name) {
  if (const auto attrs = node.find("attrs"); attrs != node.end() && attrs->is_array())
    for (const json& a : *attrs)
      if (a.value("name", "") == name) return a.value("value", json());
  return node.value(name, json());
}

std::string text_of(const json& value) {
  return value.is_string() ? value.get<std::string>() : value.is_null() ? "" : value.dump();
}
std::uint64_t number_of(const json& value) {
  return value.is_number_unsigned() || (value.is_number_integer() && value.get<std::int64_t>() >= 0)
             ? value.get<std::uint64_t>()
             : 0;
}

// PyTorch's names of types. Types that weft lacks (complex, fp8) are moved as bytes.
struct TypeOf {
  DType type;
  std::uint64_t scale = 1;  // elements of `type` per element in the trace
};
TypeOf type_of(const std::string& file, std::uint64_t node, const std::string& word) {
  static const std::map<std::string_view, TypeOf> known = {{"Float", {DType::kFloat32}},
                                                           {"Double", {DType::kFloat64}},
                                                           {"Half", {DType::kFloat16}},
                                                           {"BFloat16", {DType::kBFloat16}},
                                                           {"Int", {DType::kInt32}},
                                                           {"Long", {DType::kInt64}},
                                                           {"Short", {DType::kInt16}},
                                                           {"Char", {DType::kInt8}},
                                                           {"Byte", {DType::kUInt8}},
                                                           {"Bool", {DType::kUInt8}},
                                                           {"UInt16", {DType::kUInt16}},
                                                           {"UInt32", {DType::kUInt32}},
                                                           {"UInt64", {DType::kUInt64}},
                                                           {"QInt32", {DType::kInt32}},
                                                           {"ComplexHalf", {DType::kFloat16, 2}},
                                                           {"ComplexFloat", {DType::kFloat32, 2}},
                                                           {"ComplexDouble", {DType::kFloat64, 2}}};
  if (const auto it = known.find(word); it != known.end()) return it->second;
  // Float8_e4m3fn, Float4_e2m1fn_x2, QInt8, Bits8 and similar types have one byte.
  for (const char* start : {"Float8", "Float4", "QInt8", "QUInt8", "Bits8", "Bits4x2"})
    if (word.starts_with(start)) return {DType::kUInt8};
  throw Error(
      fmt::format("{}: node {}: dtype '{}' is not a type that weft supports", file, node, word));
}

// Returns the bytes of a tensor, [id, storage, offset, elements, bytes per element, device], or of
// a nested list of tensors.
std::uint64_t bytes_of(const json& value) {
  if (!value.is_array()) return 0;
  if (value.size() >= 6 && value[3].is_number() && value[4].is_number() && value[5].is_string())
    return number_of(value[3]) * number_of(value[4]);
  std::uint64_t bytes = 0;
  for (const json& part : value) bytes += bytes_of(part);
  return bytes;
}

// The inputs of record_param_comms: tensors (except for a wait or a barrier), the sequence number
// (or [number, is a message]), the group ([name, description], or an address), the rank (for a
// rooted call the root, for a message the peer), the collective, the split sizes of all_to_allv,
// and in later versions the group's first rank, stride and size.
struct Recorded {
  std::uint64_t bytes = 0, group_size = 0;
  std::int64_t first = -1, step = -1;  // first rank and stride of the group
  std::string number, group, word;
  std::optional<Rank> rank;
  bool by_address = false;
};
Recorded recorded(const json& values) {
  Recorded r;
  std::size_t at = 3;
  while (at < values.size() && !(values[at].is_string() && values[at - 1].is_number_integer()))
    ++at;
  if (at >= values.size()) {  // hand-written, without a collective's name
    for (const json& v : values)
      if (v.is_number_integer()) {
        r.number = v.dump();
        break;
      }
    return r;
  }
  r.word = values[at].get<std::string>();
  r.rank = values[at - 1].get<Rank>();
  const json& group = values[at - 2];
  r.by_address = !group.is_array();
  r.group = text_of(r.by_address ? group : group.empty() ? json() : group[0]);
  r.number = values[at - 3].dump();
  if (at > 3) r.bytes = bytes_of(values[0]);
  if (at + 5 < values.size() && values[at + 3].is_number_integer() &&
      values[at + 4].is_number_integer()) {
    r.first = values[at + 3].get<std::int64_t>();
    r.step = values[at + 4].get<std::int64_t>();
    r.group_size = number_of(values[at + 5]);
  }
  return r;
}

// Returns the last rank of the group.
std::int64_t last_of(const Recorded& r) {
  const auto size = static_cast<std::int64_t>(std::min<std::uint64_t>(r.group_size, kMostRanks));
  return r.first >= kMostRanks || r.step >= kMostRanks ? INT64_MAX : r.first + (size - 1) * r.step;
}

class ParamReader {
 public:
  explicit ParamReader(const TraceFile& file) : file_(file.name) {
    trace_.file = file.name;
    trace_.rank = file.rank;
  }

  RankTrace read(const json& all) {
    const std::string schema = text_of(all.value("schema", json()));
    if (!schema.starts_with("1.0.") && !schema.starts_with("1.1."))
      throw Error(fmt::format("{}: schema '{}' of execution traces; weft reads 1.0 and 1.1", file_,
                              schema));
    const auto nodes = all.find("nodes");
    if (nodes == all.end() || !nodes->is_array())
      throw Error(fmt::format("{}: the list of nodes is missing", file_));
    std::map<std::uint64_t, const json*> by_id;
    for (const json& node : *nodes) {
      if (!node.is_object() || !node.contains("id") || !node["id"].is_number_unsigned())
        throw Error(fmt::format("{}: a node has no id: {}", file_, node.dump().substr(0, 80)));
      if (!by_id.emplace(node["id"].get<std::uint64_t>(), &node).second)
        throw Error(
            fmt::format("{}: node {}: a second node of this number", file_, node["id"].dump()));
    }
    for (const auto& [id, node] : by_id) take(id, *node);
    return std::move(trace_);
  }

 private:
  void take(std::uint64_t id, const json& node) {
    const std::string name = text_of(node.value("name", json()));
    if (name.find("process_group:init") != std::string::npos) return groups(id, node);
    if (name == "record_param_comms") return communicate(id, node);
    if (text_of(attribute(node, "cat")) == "kernel" && name.starts_with("nccl")) {
      ++trace_.left_out["kernel of a call that is played"];
      return;
    }
    const json time = attribute(node, "exclusive_dur").is_null() ? attribute(node, "dur")
                                                                 : attribute(node, "exclusive_dur");
    if (time.is_number() && time.get<double>() > 0) {
      TraceNode& n = add(id, name);
      n.compute_us = time.get<double>();
      last_ = {id};
    } else if (name.starts_with("aten::")) {
      ++trace_.untimed;
    } else {
      ++trace_.left_out[name.substr(0, 48)];
    }
  }

  TraceNode& add(std::uint64_t id, const std::string& name) {
    TraceNode& node = trace_.nodes.emplace_back();
    node.id = id;
    node.name = name;
    node.after_ids = last_;
    return node;
  }

  void groups(std::uint64_t id, const json& node) {
    add_process_groups(text_of(values(id, node).at(0)), trace_);
  }

  const json& values(std::uint64_t id, const json& node) const {
    const auto inputs = node.find("inputs");
    const json* found = nullptr;
    if (inputs != node.end() && inputs->is_array())
      found = &*inputs;
    else if (inputs != node.end() && inputs->is_object() && inputs->contains("values"))
      found = &(*inputs)["values"];
    if (found == nullptr || !found->is_array() || found->empty())
      throw Error(fmt::format("{}: node {}: it has no inputs", file_, id));
    return *found;
  }

  void communicate(std::uint64_t id, const json& node) {
    const Recorded said = recorded(values(id, node));
    std::string word = text_of(attribute(node, "collective_name"));
    if (word.empty()) word = said.word;
    if (word.empty())
      throw Error(fmt::format("{}: node {}: record_param_comms has no collective_name", file_, id));
    if (word == "wait") return wait(id, said);
    if (word == "init" || word == "destroy") {
      ++trace_.left_out[word + " of a process group"];
      return;
    }
    TraceNode call;
    call.group_name = group_of(node, said);
    const bool sends = word.find("send") != word.npos;
    if (sends || word.find("recv") != word.npos) {
      call.kind = sends ? NodeKind::kSend : NodeKind::kRecv;
      if (!name_peer(node, said, word, call)) return;
    } else {
      call.kind = NodeKind::kCollective;
      call.collective = collective_in_trace(file_, id, word);
      if (rooted(call.collective) && said.rank) {
        call.root = *said.rank;
        call.ranks_of_group = true;
      }
    }
    const bool barrier =
        call.kind == NodeKind::kCollective && call.collective == Collective::kBarrier;
    if (!barrier) measure(id, node, said, call);
    if (call.bytes == 0 && !barrier) {
      ++trace_.left_out[word + " of 0 bytes"];
      return;
    }
    TraceNode& added = add(id, word);
    call.id = id;
    call.name = word;
    call.after_ids = added.after_ids;
    added = std::move(call);
    calls_[said.number] = calls_[said.group + "/" + said.number] = id;
    // PyTorch's default group lists no ranks: its size is the job's size.
    if (!trace_.groups.contains(added.group_name))
      trace_.job_ranks = std::max(trace_.job_ranks, static_cast<int>(group_size(node, said, 0)));
  }

  // Makes later nodes wait for the call that the wait names by group and number.
  void wait(std::uint64_t id, const Recorded& said) {
    auto it = calls_.find(said.group + "/" + said.number);
    if (it == calls_.end()) it = calls_.find(said.number);
    if (it == calls_.end()) return;  // the call began before the trace
    add(id, "wait").after_ids.push_back(it->second);
    last_ = {id};
  }

  std::string group_of(const json& node, const Recorded& said) {
    if (!said.by_address && !said.group.empty() && said.first >= 0 && said.step > 0 &&
        said.group_size > 1 && last_of(said) < kMostRanks &&
        !trace_.group_sizes.contains(said.group)) {
      // The file has no list of groups, or a truncated one.
      const auto size = static_cast<int>(said.group_size);
      trace_.group_sizes[said.group] = size;
      std::vector<Rank>& ranks = trace_.groups[said.group];
      for (int i = 0; i < size; ++i) ranks.push_back(static_cast<Rank>(said.first + i * said.step));
      trace_.job_ranks = std::max(trace_.job_ranks, ranks.back() + 1);
    }
    if (const std::string name = text_of(attribute(node, "pg_name")); !name.empty()) return name;
    if (!said.by_address || trace_.group_sizes.contains(said.group)) return said.group;
    ++trace_.left_out["name of a group, given by its address: all ranks are assumed"];
    return "";
  }

  // Returns whether the message has a peer.
  bool name_peer(const json& node, const Recorded& said, const std::string& word, TraceNode& call) {
    const json peer = attribute(node, call.kind == NodeKind::kSend ? "dst_rank" : "src_rank");
    call.ranks_of_group = !peer.is_number() && said.rank;
    call.peer = peer.is_number() ? peer.get<Rank>() : said.rank.value_or(kNoRank);
    if (call.peer >= 0) return true;
    ++trace_.left_out[word + " without a peer"];
    return false;
  }

  // Sets the size and type of the whole message from the attributes, or else from the tensors.
  void measure(std::uint64_t id, const json& node, const Recorded& said, TraceNode& call) const {
    const json elements_in = attribute(node, "in_msg_nelems"),
               elements_out = attribute(node, "out_msg_nelems");
    std::uint64_t put_in = said.bytes, taken_out = bytes_of(output(node));
    call.type = DType::kUInt8;
    if (elements_in.is_number() || elements_out.is_number()) {
      const std::string word = text_of(attribute(node, "dtype"));
      const std::uint64_t elements = std::max(number_of(elements_in), number_of(elements_out));
      TypeOf type{DType::kUInt8};
      try {
        type = type_of(file_, id, word);
      } catch (const Error&) {
        // Derive the size of an element from the tensors.
        const std::uint64_t bytes = std::max(put_in, taken_out);
        if (bytes == 0 || elements == 0 || bytes % elements != 0) throw;
        type.scale = bytes / elements;
      }
      call.type = type.type;
      put_in = number_of(elements_in) * type.scale * size_of(type.type);
      taken_out = number_of(elements_out) * type.scale * size_of(type.type);
    }
    if (call.kind != NodeKind::kCollective) {
      call.bytes = call.kind == NodeKind::kSend ? put_in : std::max(taken_out, said.bytes);
      return;
    }
    const bool grows =
        call.collective == Collective::kAllGather || call.collective == Collective::kGather;
    call.may_differ = by_blocks(call.collective);
    call.bytes = std::max(put_in * (grows ? group_size(node, said, 1) : 1), taken_out);
  }

  static json output(const json& node) {
    const auto it = node.find("outputs");
    if (it == node.end()) return {};
    return it->is_object() ? it->value("values", json()) : *it;
  }

  std::uint64_t group_size(const json& node, const Recorded& said, std::uint64_t otherwise) const {
    if (const std::uint64_t size = number_of(attribute(node, "pg_size")); size > 0) return size;
    if (said.group_size > 0) return said.group_size;
    const auto it = trace_.group_sizes.find(said.group);
    return it == trace_.group_sizes.end() || it->second <= 0
               ? otherwise
               : static_cast<std::uint64_t>(it->second);
  }

  const std::string file_;
  RankTrace trace_;
  std::map<std::string, std::uint64_t> calls_;  // by number, and by group/number: node
  std::vector<std::uint64_t> last_;             // dependencies of the next node
};

}  // namespace

RankTrace read_param(const TraceFile& file) {
  try {
    return ParamReader(file).read(json::parse(file.bytes));
  } catch (const json::parse_error& e) {
    throw Error(fmt::format("{}: cut off or damaged: {}", file.name, e.what()));
  } catch (const json::exception& e) {
    throw Error(fmt::format("{}: not as execution traces are: {}", file.name, e.what()));
  }
}

}  // namespace weft::replay
