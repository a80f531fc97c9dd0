// Reads PARAM / PyTorch execution traces, one JSON text per rank. Knows no other format.
//
// A rank's operators are played in the order of their numbers, in which the process issued them: a
// call waits for the computation before it, and what comes after a "wait" waits for its call.
#include <fmt/format.h>

#include <map>
#include <nlohmann/json.hpp>
#include <set>
#include <string>
#include <vector>

#include "perf/replay/read.h"
#include "topo/base/status.h"

namespace weft::replay {
namespace {

using nlohmann::json;

// A node's attributes by name: fields of the node (older schemas), or of its list "attrs".
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

// PyTorch's names of types. Types that weft has not (complex, fp8) are moved as bytes.
struct TypeOf {
  DType type;
  std::uint64_t scale = 1;  // elements of `type` for one of the trace's
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
                                                           {"ComplexFloat", {DType::kFloat32, 2}},
                                                           {"ComplexDouble", {DType::kFloat64, 2}},
                                                           {"Float8_e4m3fn", {DType::kUInt8}},
                                                           {"Float8_e5m2", {DType::kUInt8}}};
  if (const auto it = known.find(word); it != known.end()) return it->second;
  throw Error(fmt::format("{}: node {}: dtype '{}' is no type that weft knows", file, node, word));
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
      throw Error(fmt::format("{}: there is no list of nodes", file_));
    std::map<std::uint64_t, const json*> by_id;
    for (const json& node : *nodes) {
      if (!node.is_object() || !node.contains("id") || !node["id"].is_number_unsigned())
        throw Error(fmt::format("{}: a node has no id: {}", file_, node.dump().substr(0, 80)));
      if (!by_id.emplace(node["id"].get<std::uint64_t>(), &node).second)
        throw Error(
            fmt::format("{}: node {}: a second node of this number", file_, node["id"].dump()));
    }
    check_parents(by_id);
    for (const auto& [id, node] : by_id) take(id, *node);
    return std::move(trace_);
  }

 private:
  // Every node has a parent, up to one that is its own or 0.
  void check_parents(const std::map<std::uint64_t, const json*>& by_id) const {
    std::set<std::uint64_t> good;
    for (const auto& [id, node] : by_id) {
      std::set<std::uint64_t> path;
      std::uint64_t at = id;
      while (!good.contains(at)) {
        if (!path.insert(at).second)
          throw Error(fmt::format("{}: node {}: its parents go in a circle", file_, at));
        const auto it = by_id.find(at);
        if (it == by_id.end()) {
          // The root of the trace may be left out.
          if (at <= 1) break;
          throw Error(
              fmt::format("{}: node {} is a parent, and the file does not have it", file_, at));
        }
        const json up = it->second->contains("ctrl_deps") ? (*it->second)["ctrl_deps"]
                                                          : it->second->value("parent", json(at));
        const std::uint64_t parent = number_of(up);
        if (parent == at) break;
        at = parent;
      }
      good.insert(path.begin(), path.end());
    }
  }

  void take(std::uint64_t id, const json& node) {
    const std::string name = text_of(node.value("name", json()));
    if (name.find("process_group:init") != std::string::npos) return groups(id, node);
    if (name == "record_param_comms") return communicate(id, node);
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
    const json list = json::parse(text_of(values(id, node).at(0)), nullptr, false);
    if (!list.is_array())
      throw Error(fmt::format("{}: node {}: process groups cannot be read", file_, id));
    for (const json& group : list) {
      const std::string name = text_of(group.value("pg_name", json()));
      const auto size = static_cast<int>(number_of(group.value("group_size", json(0))));
      auto ranks = group.value("ranks", std::vector<Rank>());
      if (ranks.empty() || text_of(group.value("pg_desc", json())) == "default_pg")
        trace_.job_ranks = std::max({trace_.job_ranks, size, static_cast<int>(ranks.size())});
      sizes_[name] = ranks.empty() ? size : static_cast<int>(ranks.size());
      if (!ranks.empty()) trace_.groups[name] = std::move(ranks);
    }
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

  // The number by which a wait names its call: the first whole number of the inputs.
  static std::uint64_t request_of(const json& values) {
    for (const json& v : values)
      if (v.is_number_integer()) return number_of(v);
    return 0;
  }

  void communicate(std::uint64_t id, const json& node) {
    const json& in = values(id, node);
    const std::string word = text_of(attribute(node, "collective_name"));
    if (word.empty())
      throw Error(fmt::format("{}: node {}: record_param_comms has no collective_name", file_, id));
    if (word == "wait") {
      const auto it = calls_.find(request_of(in));
      if (it == calls_.end()) return;  // the call began before the trace
      add(id, word).after_ids.push_back(it->second);
      last_ = {id};
      return;
    }
    if (word == "init" || word == "destroy") {
      ++trace_.left_out[word + " of a process group"];
      return;
    }
    const bool sends = word.find("send") != word.npos, receives = word.find("recv") != word.npos;
    TraceNode call;
    const TypeOf type = type_of(file_, id, text_of(attribute(node, "dtype")));
    const std::uint64_t put_in = number_of(attribute(node, "in_msg_nelems"));
    const std::uint64_t taken_out = number_of(attribute(node, "out_msg_nelems"));
    call.type = type.type;
    call.group_name = text_of(attribute(node, "pg_name"));
    if (sends || receives) {
      call.kind = sends ? NodeKind::kSend : NodeKind::kRecv;
      const json peer = attribute(node, sends ? "dst_rank" : "src_rank");
      if (!peer.is_number())
        throw Error(fmt::format("{}: node {}: {} does not say its peer", file_, id, word));
      call.peer = peer.get<Rank>();
    } else {
      call.kind = NodeKind::kCollective;
      call.collective = collective_in_trace(file_, id, word);
    }
    std::uint64_t elements = sends ? put_in : taken_out;
    switch (call.kind == NodeKind::kCollective ? call.collective : Collective::kSendRecv) {
      case Collective::kAllGather:
      case Collective::kGather:
        elements = std::max(put_in * group_size(node), taken_out);
        break;
      case Collective::kAllReduce:
      case Collective::kReduceScatter:
      case Collective::kScatter:
      case Collective::kAllToAll:
      case Collective::kBroadcast:
      case Collective::kReduce:
        elements = std::max(put_in, taken_out);
        break;
      default:
        break;
    }
    call.bytes = elements * type.scale * size_of(call.type);
    if (call.kind == NodeKind::kCollective && call.collective == Collective::kBarrier)
      call.bytes = 0;
    if (call.bytes == 0 &&
        !(call.kind == NodeKind::kCollective && call.collective == Collective::kBarrier)) {
      ++trace_.left_out[word + " of 0 bytes"];
      return;
    }
    TraceNode& added = add(id, word);
    call.id = id;
    call.name = word;
    call.after_ids = added.after_ids;
    added = std::move(call);
    calls_[request_of(in)] = id;
    // PyTorch's default group lists no ranks: its size is that of the job.
    if (const std::uint64_t size = number_of(attribute(node, "pg_size"));
        size > 0 && !trace_.groups.contains(added.group_name))
      trace_.job_ranks = std::max(trace_.job_ranks, static_cast<int>(size));
  }

  std::uint64_t group_size(const json& node) const {
    if (const std::uint64_t size = number_of(attribute(node, "pg_size")); size > 0) return size;
    const auto it = sizes_.find(text_of(attribute(node, "pg_name")));
    return it == sizes_.end() ? 1 : static_cast<std::uint64_t>(std::max(it->second, 1));
  }

  const std::string file_;
  RankTrace trace_;
  std::map<std::string, int> sizes_;
  std::map<std::uint64_t, std::uint64_t> calls_;  // by the request's number: node
  std::vector<std::uint64_t> last_;               // what the next node waits for
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
