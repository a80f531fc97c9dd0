// Writes a job as GOAL: messages and computations unchanged, and each collective as the messages of
// the algorithm that `auto` selects for it. Does not depend on the engine.
#include "perf/replay/write_goal.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <tuple>
#include <utility>
#include <vector>

#include "coll/schedule/algorithm.h"
#include "coll/select/cost.h"
#include "topo/base/status.h"

namespace weft::replay {
namespace {

constexpr std::size_t kMostBytes = std::size_t{4} << 30;

class GoalWriter {
 public:
  GoalWriter(const JobTrace& trace, const ReplayFabric& fabric)
      : trace_(trace), model_(model_of(fabric.options)), hosts_(fabric.options.host_of_rank) {
    for (const Program& program : trace.programs)
      for (const TraceNode& node : program) first_tag_ = std::max(first_tag_, node.tag + 1);
  }

  std::string write() {
    out_ = fmt::format("num_ranks {}\n", trace_.ranks);
    for (Rank r = 0; r < trace_.ranks; ++r) rank(r);
    return std::move(out_);
  }

 private:
  void rank(Rank r) {
    out_ += fmt::format("rank {} {{\n", r);
    next_ = 0;
    std::map<int, int> calls;  // number of calls, by group
    std::vector<int> ends;     // the operation that ends each node
    for (const TraceNode& node : trace_.program(r)) {
      std::vector<int> after;
      for (const int a : node.after) after.push_back(ends[static_cast<std::size_t>(a)]);
      switch (node.kind) {
        case NodeKind::kCompute:
          ends.push_back(add(fmt::format("calc {:.0f}", node.compute_us * 1e3), after));
          break;
        case NodeKind::kSend:
          ends.push_back(message(true, node.bytes, node.peer, node.tag, after));
          break;
        case NodeKind::kRecv:
          ends.push_back(message(false, node.bytes, node.peer, node.tag, after));
          break;
        case NodeKind::kCollective:
          ends.push_back(collective(r, node, calls[node.group]++, after));
      }
      if (out_.size() > kMostBytes)
        throw Error(
            fmt::format("--goal: the text of this job has more than {} GiB", kMostBytes >> 30));
    }
    out_ += "}\n";
  }

  int add(const std::string& what, const std::vector<int>& after) {
    const int me = next_++;
    out_ += fmt::format("l{}: {}\n", me, what);
    for (const int a : after) out_ += fmt::format("l{} requires l{}\n", me, a);
    return me;
  }
  int message(bool sends, std::uint64_t bytes, Rank peer, std::int64_t tag,
              const std::vector<int>& after) {
    return add(fmt::format("{} {}b {} {} tag {}", sends ? "send" : "recv", bytes,
                           sends ? "to" : "from", peer, tag),
               after);
  }

  // Returns the first tag of a call's messages, equal on all ranks of the list: by the index of the
  // call.
  std::int64_t tag_of(const std::vector<Rank>* list, int call) {
    const auto [it, first] = tags_.try_emplace(
        {list, call}, first_tag_ + static_cast<std::int64_t>(tags_.size()) * kChannels);
    return it->second;
  }

  int collective(Rank r, const TraceNode& node, int call, const std::vector<int>& after) {
    const std::vector<Rank>& list = *trace_.list_of(node.group, r);
    const int n = static_cast<int>(list.size());
    const std::int64_t tag = tag_of(&list, call);
    const int me = static_cast<int>(std::ranges::find(list, r) - list.begin());
    if (node.collective == Collective::kSendRecv) {
      const int by = node.back ? n - 1 : 1;
      const auto at = [&](int i) { return list[static_cast<std::size_t>(i % n)]; };
      const int sent = message(true, node.bytes, at(me + by), tag, after);
      const int received = message(false, node.bytes, at(me + n - by), tag, after);
      return add("calc 0", {sent, received});
    }
    Shape shape = shape_of(list);
    shape.rank = me;
    const auto root = std::ranges::find(list, node.root);
    shape.root = root == list.end() ? 0 : static_cast<Rank>(root - list.begin());
    return steps(algorithm(node, shape).build(shape), node, list, tag, after);
  }

  Shape shape_of(const std::vector<Rank>& list) const {
    Shape shape;
    shape.nranks = static_cast<int>(list.size());
    std::map<int, std::size_t> hosts;
    for (std::size_t i = 0; i < list.size(); ++i) {
      const int host = hosts_[static_cast<std::size_t>(list[i])];
      const std::size_t at = hosts.try_emplace(host, hosts.size()).first->second;
      shape.hosts.resize(std::max(shape.hosts.size(), at + 1));
      shape.hosts[at].push_back(static_cast<Rank>(i));
    }
    return shape;
  }

  const Algorithm& algorithm(const TraceNode& node, Shape shape) {
    const auto key = std::tuple{node.collective, node.bytes, shape.root, shape.hosts};
    const Algorithm*& chosen = chosen_[key];
    if (chosen == nullptr) {
      shape.rank = 0;  // so that all ranks select the same
      chosen =
          pick(node.collective, shape, std::max<std::uint64_t>(node.bytes, 1), model_).algorithm;
    }
    if (chosen == nullptr)
      throw Error(fmt::format("--goal: no algorithm for {} of {} ranks", name(node.collective),
                              shape.nranks));
    return *chosen;
  }

  // Adds the steps of a schedule. A step depends on the last writers of its chunks and, if it
  // writes, on the readers since then.
  int steps(const Schedule& schedule, const TraceNode& node, const std::vector<Rank>& list,
            std::int64_t tag, const std::vector<int>& after) {
    const auto chunks = static_cast<std::size_t>(schedule.nchunks);
    std::vector<int> writer(chunks, -1);
    std::vector<std::vector<int>> readers(chunks);
    std::vector<int> all;
    const std::uint64_t all_bytes =
        node.bytes * (node.collective == Collective::kAllToAll ? list.size() : 1);
    for (const Step& step : schedule.steps) {
      std::vector<int> before = after;
      for (int c = step.at.first; c < step.at.end(); ++c) {
        const auto at = static_cast<std::size_t>(c);
        if (writer[at] >= 0) before.push_back(writer[at]);
        if (step.op != Op::kSend)
          before.insert(before.end(), readers[at].begin(), readers[at].end());
      }
      std::ranges::sort(before);
      before.erase(std::unique(before.begin(), before.end()), before.end());
      const std::uint64_t bytes = bytes_of(schedule, step.at, all_bytes);
      const int me = message(step.op == Op::kSend, bytes, list[static_cast<std::size_t>(step.peer)],
                             tag + step.channel, before);
      for (int c = step.at.first; c < step.at.end(); ++c) {
        const auto at = static_cast<std::size_t>(c);
        if (step.op == Op::kSend) {
          readers[at].push_back(me);
        } else {
          writer[at] = me;
          readers[at].clear();
        }
      }
      all.push_back(me);
    }
    if (all.empty()) all = after;
    return add("calc 0", all);
  }

  // Returns the bytes of the chunks `at` of `bytes` (of an all_to_all: the bytes of all ranks'
  // blocks).
  static std::uint64_t bytes_of(const Schedule& schedule, Chunks at, std::uint64_t bytes) {
    const auto n = static_cast<std::uint64_t>(schedule.nchunks);
    const auto upto = [&](int chunk) { return bytes * static_cast<std::uint64_t>(chunk) / n; };
    return std::max<std::uint64_t>(upto(at.end()) - upto(at.first), 1);
  }

  const JobTrace& trace_;
  const CostModel model_;
  const std::vector<int> hosts_;
  std::int64_t first_tag_ = 0;
  int next_ = 0;
  std::map<std::pair<const std::vector<Rank>*, int>, std::int64_t> tags_;
  std::map<std::tuple<Collective, std::uint64_t, Rank, std::vector<std::vector<Rank>>>,
           const Algorithm*>
      chosen_;
  std::string out_;
};

}  // namespace

std::string goal_of(const JobTrace& trace, const ReplayFabric& fabric) {
  return GoalWriter(trace, fabric).write();
}

}  // namespace weft::replay
