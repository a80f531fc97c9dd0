// Writes a Chakra trace; built only where protobuf was found. Knows no trainer.
#include <fmt/format.h>
#include <google/protobuf/io/coded_stream.h>
#include <google/protobuf/io/zero_copy_stream_impl_lite.h>

#include <algorithm>
#include <fstream>
#include <iterator>
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "chakra.pb.h"
#include "coll/jobs/chakra.h"
#include "coll/observe/trace.h"
#include "topo/base/status.h"
#include "train/cli/train_chakra.h"

namespace weft::train {
namespace {

struct Operation {
  double begin_us = 0, end_us = 0;
  std::string name, word, type, group;
  std::uint64_t bytes = 0;
  int members = 0;
  Rank root = 0, leader = 0;
};

std::vector<Operation> operations_of(const std::string& file) {
  std::ifstream in(file);
  const auto all = nlohmann::json::parse(in, nullptr, false);
  if (all.is_discarded()) throw Error(fmt::format("--trace {}: cannot be read again", file));
  std::vector<Operation> operations;
  for (const auto& event : all.at("traceEvents")) {
    if (event.value("cat", "") != "operation" || !event.at("args").at("ok").get<bool>()) continue;
    const auto& args = event.at("args");
    Operation& o = operations.emplace_back();
    o.begin_us = event.at("ts");
    o.end_us = o.begin_us + event.at("dur").get<double>();
    o.name = event.at("name");
    o.word = args.at("collective");
    o.type = args.at("type");
    o.members = args.at("members");
    o.root = args.at("root");
    o.leader = args.at("leader");
    o.bytes = args.at("bytes");
    const auto collective = collective_from(o.word);
    if (collective && by_blocks(*collective) && !args.at("uneven").get<bool>())
      o.bytes *= static_cast<std::uint64_t>(o.members);
    o.group =
        fmt::format("{}.{}.{}", args.at("communicator").get<std::uint64_t>(), o.leader, o.members);
  }
  std::ranges::stable_sort(operations, {}, &Operation::begin_us);
  return operations;
}

void set(chakra::Node& node, std::string_view name, std::uint64_t value) {
  auto& attribute = *node.add_attributes();
  attribute.set_name(std::string(name));
  attribute.set_uint64_val(value);
}
void set(chakra::Node& node, std::string_view name, const std::string& value) {
  auto& attribute = *node.add_attributes();
  attribute.set_name(std::string(name));
  attribute.set_string_val(value);
}

void describe(const Operation& o, chakra::Node& node) {
  using chakra::Type;
  node.set_name(o.name);
  const bool sends = o.word == "send";
  if (sends || o.word == "recv") {
    node.set_type(static_cast<unsigned>(sends ? Type::kSend : Type::kRecv));
    set(node, sends ? chakra::kCommDst : chakra::kCommSrc, static_cast<std::uint64_t>(o.root));
    set(node, chakra::kCommSize, o.bytes);
    return;
  }
  const Collective collective = collective_from(o.word).value();
  node.set_type(static_cast<unsigned>(Type::kCollective));
  const auto number =
      std::ranges::find(chakra::kCollectiveOf, collective) - std::begin(chakra::kCollectiveOf);
  set(node, chakra::kCommType, static_cast<std::uint64_t>(number));
  const bool grows = collective == Collective::kAllGather || collective == Collective::kGather;
  set(node, chakra::kCommSize,
      grows && o.members > 0 ? o.bytes / static_cast<std::uint64_t>(o.members) : o.bytes);
  set(node, chakra::kWholeBytes, o.bytes);
  set(node, chakra::kDataType, o.type);
  set(node, chakra::kGroupName, o.group);
  if (rooted(collective)) set(node, chakra::kRoot, static_cast<std::uint64_t>(o.leader));
}

class Writer {
 public:
  explicit Writer(std::string& out) : stream_(&out), coded_(&stream_) {}
  void write(const google::protobuf::MessageLite& message) {
    coded_.WriteVarint32(static_cast<std::uint32_t>(message.ByteSizeLong()));
    message.SerializeToCodedStream(&coded_);
  }

 private:
  google::protobuf::io::StringOutputStream stream_;
  google::protobuf::io::CodedOutputStream coded_;
};

}  // namespace

void write_chakra_trace(const std::string& path, Rank rank) {
  const std::vector<Operation> operations = operations_of(file_of_rank(path, rank));
  const std::string file = chakra_file(path, rank);
  std::string bytes;
  {
    Writer writer(bytes);
    chakra::Metadata metadata;
    metadata.set_version(std::string(chakra::kVersion));
    std::map<std::string, int> groups;
    for (const Operation& o : operations)
      if (o.word != "send" && o.word != "recv") groups[o.group] = o.members;
    for (const auto& [name, members] : groups) {
      auto& attribute = *metadata.add_attributes();
      attribute.set_name(fmt::format("{}{}", chakra::kMember, name));
      attribute.set_uint64_val(static_cast<std::uint64_t>(members));
    }
    writer.write(metadata);
    std::uint64_t id = 0, computed = 0;
    double since_us = operations.empty() ? 0 : operations[0].begin_us;
    struct Open {
      std::uint64_t id;
      double end_us;
    };
    std::vector<Open> open;
    for (const Operation& o : operations) {
      // The computation before the operation waits for what was over by then.
      chakra::Node between;
      between.set_id(++id);
      between.set_name("computation");
      between.set_type(static_cast<unsigned>(chakra::Type::kCompute));
      if (computed > 0) between.add_ctrl_deps(computed);
      std::erase_if(open, [&](const Open& before) {
        if (before.end_us > o.begin_us) return false;
        between.add_data_deps(before.id);
        since_us = std::max(since_us, before.end_us);
        return true;
      });
      between.set_duration_micros(
          static_cast<std::uint64_t>(std::max(0.0, o.begin_us - since_us) + 0.5));
      writer.write(between);
      computed = id;
      chakra::Node node;
      node.set_id(++id);
      node.add_ctrl_deps(computed);
      node.set_start_time_micros(static_cast<std::uint64_t>(std::max(0.0, o.begin_us)));
      describe(o, node);
      writer.write(node);
      open.push_back({id, o.end_us});
      since_us = o.begin_us;
    }
  }
  std::ofstream out(file, std::ios::binary);
  out << bytes;
  out.close();
  if (!out) throw Error(fmt::format("--trace {}: cannot be written: is its disk full?", file));
}

}  // namespace weft::train
