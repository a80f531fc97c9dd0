// Writes a Chakra trace; compiled only with protobuf. Does not depend on the trainer.
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
  Rank root = 0;  // a world rank; for a message: the peer
};
// A group as PyTorch describes it; Chakra's name is a number, as ASTRA-sim requires.
struct NamedGroup {
  std::string name;
  std::vector<Rank> ranks;
};
struct Operations {
  std::vector<Operation> list;
  std::map<std::string, NamedGroup> named;  // by Chakra's name
  std::map<std::string, int> unnamed;       // number of ranks per group
};

Operations operations_of(const std::string& file) {
  std::ifstream in(file);
  const auto all = nlohmann::json::parse(in, nullptr, false);
  if (all.is_discarded()) throw Error(fmt::format("--trace {}: cannot be read again", file));
  const auto& about = all.at("otherData");
  std::map<std::uint64_t, NamedGroup> communicators;
  for (const auto& c : about.at("communicators"))
    communicators[c.at("communicator")] = {c.at("name"), c.at("ranks")};
  Operations result;
  for (const auto& event : all.at("traceEvents")) {
    if (event.value("cat", "") != "operation" || !event.at("args").at("ok").get<bool>()) continue;
    const auto& args = event.at("args");
    Operation o;
    o.begin_us = event.at("ts");
    o.end_us = o.begin_us + event.at("dur").get<double>();
    o.name = event.at("name");
    o.word = args.at("collective");
    o.type = args.at("type");
    o.members = args.at("members");
    o.root = args.at("root");
    o.bytes = args.at("bytes");
    const auto collective = collective_from(o.word);
    if (collective && by_blocks(*collective) && !args.at("uneven").get<bool>())
      o.bytes *= static_cast<std::uint64_t>(o.members);
    if (collective) {
      if (o.members == 1) continue;
      const Rank leader = args.at("leader");
      const std::uint64_t number = args.at("communicator");
      const NamedGroup& group = communicators[number];
      const bool known =
          static_cast<int>(group.ranks.size()) == o.members && group.ranks[0] == leader;
      if (known) {
        o.group = std::to_string(number);
        o.root = group.ranks.at(static_cast<std::size_t>(o.root));
        result.named[o.group] = group;
      } else if (o.members == about.at("ranks")) {
        o.group = "0";  // all ranks, for ASTRA-sim and PyTorch
      } else {
        o.group = fmt::format("{}.{}.{}", number, leader, o.members);
        o.root = leader;
        result.unnamed[o.group] = o.members;
      }
    }
    result.list.push_back(std::move(o));
  }
  std::ranges::stable_sort(result.list, {}, &Operation::begin_us);
  return result;
}

chakra::Attribute& add(chakra::Node& node, std::string_view name) {
  auto& attribute = *node.add_attributes();
  attribute.set_name(std::string(name));
  return attribute;
}

// Chakra's feeder reads each attribute from a field of one type, and reads 0 from other fields.
void describe(const Operation& o, chakra::Node& node) {
  using chakra::Type;
  node.set_name(o.name);
  add(node, chakra::kIsCpu).set_bool_val(false);
  const bool sends = o.word == "send";
  if (sends || o.word == "recv") {
    node.set_type(static_cast<unsigned>(sends ? Type::kSend : Type::kRecv));
    add(node, sends ? chakra::kCommDst : chakra::kCommSrc).set_int32_val(o.root);
    add(node, chakra::kCommTag).set_int32_val(0);
    add(node, chakra::kCommSize).set_int64_val(static_cast<std::int64_t>(o.bytes));
    return;
  }
  const Collective collective = collective_from(o.word).value();
  node.set_type(static_cast<unsigned>(Type::kCollective));
  const auto number =
      std::ranges::find(chakra::kCollectiveOf, collective) - std::begin(chakra::kCollectiveOf);
  add(node, chakra::kCommType).set_int64_val(number);
  const bool grows = collective == Collective::kAllGather || collective == Collective::kGather;
  const std::uint64_t put_in =
      grows && o.members > 0 ? o.bytes / static_cast<std::uint64_t>(o.members) : o.bytes;
  add(node, chakra::kCommSize).set_int64_val(static_cast<std::int64_t>(put_in));
  add(node, chakra::kWholeBytes).set_uint64_val(o.bytes);
  add(node, chakra::kDataType).set_string_val(o.type);
  add(node, chakra::kGroupName).set_string_val(o.group);
  if (rooted(collective))
    add(node, chakra::kRoot).set_uint64_val(static_cast<std::uint64_t>(o.root));
}

// Returns the groups in the format of PyTorch's converter, which ASTRA-sim reads: ['[{...}, ...]'].
chakra::Node groups_of(const Operations& operations, std::uint64_t id) {
  auto list = nlohmann::json::array();
  for (const auto& [number, group] : operations.named)
    list.push_back({{"pg_name", number},
                    {"pg_desc", group.name},
                    {"ranks", group.ranks},
                    {"group_size", group.ranks.size()}});
  chakra::Node node;
  node.set_id(id);
  node.set_name("## process_group:init ##");
  node.set_type(static_cast<unsigned>(chakra::Type::kMetadata));
  add(node, chakra::kIsCpu).set_bool_val(true);
  node.mutable_inputs()->set_values(fmt::format("['{}']", list.dump()));
  return node;
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
  const Operations operations = operations_of(file_of_rank(path, rank));
  const std::string file = chakra_file(path, rank);
  std::string bytes;
  {
    Writer writer(bytes);
    chakra::Metadata metadata;
    metadata.set_version(std::string(chakra::kVersion));
    for (const auto& [name, members] : operations.unnamed) {
      auto& attribute = *metadata.add_attributes();
      attribute.set_name(fmt::format("{}{}", chakra::kMember, name));
      attribute.set_uint64_val(static_cast<std::uint64_t>(members));
    }
    writer.write(metadata);
    std::uint64_t id = 0, computed = 0;
    if (!operations.named.empty()) writer.write(groups_of(operations, ++id));
    double since_us = operations.list.empty() ? 0 : operations.list[0].begin_us;
    struct Open {
      std::uint64_t id;
      double end_us;
    };
    std::vector<Open> open;
    for (const Operation& o : operations.list) {
      // The computation before an operation depends on all operations that had ended by then.
      chakra::Node between;
      between.set_id(++id);
      between.set_name("computation");
      between.set_type(static_cast<unsigned>(chakra::Type::kCompute));
      add(between, chakra::kIsCpu).set_bool_val(false);
      if (computed > 0) between.add_data_deps(computed);
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
      node.add_data_deps(computed);
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
