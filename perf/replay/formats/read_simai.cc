// Reads SimAI workloads: one text for all ranks of a job, which run the same layers. This file does
// not depend on other formats.
#include <fmt/format.h>

#include <array>
#include <cctype>
#include <charconv>
#include <cmath>
#include <map>
#include <sstream>
#include <string>
#include <vector>

#include "perf/replay/formats/read.h"
#include "topo/base/status.h"

namespace weft::replay {
namespace {

// Limit of the messages of a rank's pipeline, per direction.
constexpr std::size_t kMostPieces = 1u << 20;

struct Axes {
  std::int64_t all = 0, tp = 0, ep = 1, pp = 1;
};

// AICB, the generator, writes some integers as Python floats: "65536.0".
std::uint64_t number_in(const std::string& file, std::size_t line, const std::string& what,
                        const std::string& word) {
  const char *begin = word.data(), *end = begin + word.size();
  std::uint64_t value = 0;
  if (const auto [at, error] = std::from_chars(begin, end, value);
      error == std::errc() && at == end)
    return value;
  double real = 0;
  const auto [at, error] = std::from_chars(begin, end, real);
  if (error != std::errc() || at != end || !(real >= 0 && real < 1e18))
    throw Error(
        fmt::format("{}: line {}: {} '{}' is not a number from 0 up", file, line, what, word));
  return static_cast<std::uint64_t>(std::llround(real));
}

std::vector<Rank> every(std::int64_t step, std::int64_t size) {
  std::vector<Rank> ranks;
  for (std::int64_t i = 0; i < size; ++i) ranks.push_back(static_cast<Rank>(i * step));
  return ranks;
}

// A computation or a call of a layer in one of its three passes.
struct Pass {
  const char* name;
  std::uint64_t ns = 0;
  std::string call = {};
  std::uint64_t bytes = 0;
};
struct Layer {
  std::string name;
  std::size_t line = 0;
  Pass forward{"forward"}, input{"input gradient"}, weight{"weight gradient"};
};

class SimaiJob {
 public:
  SimaiJob(const TraceFile& file, RankTrace& trace) : file_(file.name), trace_(trace) {}

  void header(const std::string& line) {
    std::istringstream in(line);
    std::string policy, word;
    in >> policy;
    if (policy != "HYBRID_TRANSFORMER_FWD_IN_BCKWD" && policy != "HYBRID_TRANSFORMER")
      throw Error(
          fmt::format("{}: line 1: '{}' is not a policy that weft supports: HYBRID_TRANSFORMER and "
                      "HYBRID_TRANSFORMER_FWD_IN_BCKWD",
                      file_, policy));
    std::map<std::string, std::uint64_t> values;
    while (in >> word) {
      if (word.ends_with(':')) word.pop_back();
      std::string value;
      in >> value;
      values[word] = number_in(file_, 1, word, value);
    }
    const auto take = [&](const char* key, std::uint64_t otherwise) {
      const auto it = values.find(key);
      const std::uint64_t value = it == values.end() ? otherwise : it->second;
      if (value < 1 || value > 1u << 20)
        throw Error(fmt::format("{}: line 1: {} {}: give 1 to {}", file_, key, value, 1 << 20));
      return static_cast<std::int64_t>(value);
    };
    axes_.tp = take("model_parallel_NPU_group", 0);
    axes_.all = take("all_gpus", static_cast<std::uint64_t>(axes_.tp));
    axes_.ep = take("ep", 1);
    axes_.pp = take("pp", 1);
    const std::int64_t dp = axes_.all / (axes_.tp * axes_.pp);
    if (axes_.tp * axes_.pp * dp != axes_.all || dp % axes_.ep != 0)
      throw Error(
          fmt::format("{}: line 1: {} ranks cannot be {} tensor x {} pipeline x data "
                      "parallel, with groups of {} experts",
                      file_, axes_.all, axes_.tp, axes_.pp, axes_.ep));
    trace_.job_ranks = static_cast<int>(axes_.all);
    trace_.groups = {{"TP", every(1, axes_.tp)},
                     {"DP", every(axes_.tp, dp)},
                     {"EP", every(axes_.tp, axes_.ep)},
                     {"DP_EP", every(axes_.tp * axes_.ep, dp / axes_.ep)}};
    if (axes_.pp > 1) {
      trace_.groups["PP"] = every(axes_.all / axes_.pp, axes_.pp);
      pieces_ = static_cast<std::size_t>(take("ga", 1) * take("vpp", 1));
      if (pieces_ > kMostPieces)
        throw Error(
            fmt::format("{}: line 1: {} micro-batches (ga) of {} pieces (vpp): more than "
                        "{} messages per rank",
                        file_, values["ga"], values["vpp"], kMostPieces));
      passed_ = values["pp_comm"];
      if (passed_ == 0)
        trace_.left_out["messages of the pipeline, whose size (pp_comm) the file does not state"] =
            2 * pieces_;
    }
    if (values["checkpoints"] > 0)
      trace_.left_out["recomputation of layers (checkpoints)"] = values["checkpoints"];
  }

  void layer(std::size_t line, const std::string& text) {
    std::istringstream in(text);
    std::vector<std::string> words;
    for (std::string word; in >> word;) words.push_back(word);
    if (words.size() < 12)
      throw Error(fmt::format("{}: line {}: {} words of 12: cut off", file_, line, words.size()));
    Layer& layer = layers_.emplace_back();
    layer.name = words[0];
    layer.line = line;
    std::size_t at = 2;
    for (Pass* pass : {&layer.forward, &layer.input, &layer.weight}) {
      pass->ns = number_in(file_, line, "the time", words[at]);
      pass->call = words[at + 1];
      pass->bytes = number_in(file_, line, "the size", words[at + 2]);
      at += 3;
    }
  }

  std::size_t layers() const { return layers_.size(); }

  void build() {
    std::size_t done = 0;
    for (const Layer& layer : layers_) {
      compute(layer, layer.forward, last_);
      if (const auto sent = call(layer, layer.forward, "TP")) last_ = {sent};
      pass_on(layer, layer.forward, ++done);
    }
    done = 0;
    for (auto it = layers_.rbegin(); it != layers_.rend(); ++it) {
      compute(*it, it->input, last_);
      const std::uint64_t sent = call(*it, it->input, "TP");
      compute(*it, it->weight, last_);
      (void)call(*it, it->weight, "DP");
      if (sent) last_.push_back(sent);  // the next pass waits for it; the weights' call overlaps
      pass_on(*it, it->input, ++done);
    }
  }

 private:
  // The layers of all micro-batches are divided evenly into one piece per micro-batch, followed by
  // a message to the next stage. Adds the messages of the pieces that end with layer number `done`
  // of a direction.
  void pass_on(const Layer& layer, const Pass& pass, std::size_t done) {
    if (passed_ == 0) return;
    const std::size_t before = (done - 1) * pieces_ / layers_.size();
    for (std::size_t i = before; i < done * pieces_ / layers_.size(); ++i) {
      TraceNode& node = add(layer, pass);
      node.kind = NodeKind::kCollective;
      node.collective = Collective::kSendRecv;
      node.back = &pass == &layer.input;
      node.bytes = passed_;
      node.group_name = "PP";
      node.type = DType::kUInt8;
      node.after_ids = last_;
      last_ = {node.id};
    }
  }

  void compute(const Layer& layer, const Pass& pass, std::vector<std::uint64_t>& after) {
    if (pass.ns == 0) return;
    TraceNode& node = add(layer, pass);
    node.compute_us = static_cast<double>(pass.ns) / 1e3;
    node.after_ids = after;
    after = {node.id};
  }

  // Adds the call and returns its node id; 0: there is no call.
  std::uint64_t call(const Layer& layer, const Pass& pass, const char* otherwise) {
    if (pass.call == "NONE") return 0;
    std::string word = pass.call, group = otherwise;
    for (const char* end : {"_DP_EP", "_EP", "_DP", "_TP"})
      if (word.ends_with(end)) {
        group = end + 1;
        word.erase(word.size() - std::string_view(end).size());
        break;
      }
    const Collective collective = collective_in_trace(file_, layer.line, word);
    if (pass.bytes == 0) {
      ++trace_.left_out[fmt::format("{} of 0 bytes", pass.call)];
      return 0;
    }
    TraceNode& node = add(layer, pass);
    node.kind = NodeKind::kCollective;
    node.collective = collective;
    node.bytes = pass.bytes;
    node.group_name = group;
    node.type = pass.bytes % 4 == 0 ? DType::kFloat32 : DType::kUInt8;
    node.after_ids = last_;
    return node.id;
  }

  TraceNode& add(const Layer& layer, const Pass& pass) {
    TraceNode& node = trace_.nodes.emplace_back();
    node.id = trace_.nodes.size();
    node.name = fmt::format("{} {}, line {}", layer.name, pass.name, layer.line);
    return node;
  }

  const std::string file_;
  RankTrace& trace_;
  Axes axes_;
  std::size_t pieces_ = 0;    // per direction
  std::uint64_t passed_ = 0;  // bytes of a message of the pipeline; 0: none
  std::vector<Layer> layers_;
  std::vector<std::uint64_t> last_;  // dependencies of the next computation
};

}  // namespace

RankTrace read_simai(const TraceFile& file) {
  RankTrace trace;
  trace.file = file.name;
  std::istringstream in(file.bytes);
  std::string line, count;
  SimaiJob job(file, trace);
  std::getline(in, line);
  job.header(line);
  std::getline(in, count);
  while (!count.empty() && std::isspace(static_cast<unsigned char>(count.back()))) count.pop_back();
  const std::uint64_t layers = number_in(file.name, 2, "the number of layers", count);
  for (std::size_t number = 3; std::getline(in, line); ++number)
    if (line.find_first_not_of(" \t\r") != std::string::npos) job.layer(number, line);
  if (job.layers() != layers)
    throw Error(fmt::format("{}: line 2 says {} layers, and there are {}: cut off", file.name,
                            layers, job.layers()));
  job.build();
  return trace;
}

}  // namespace weft::replay
