// Folds a trace onto fewer ranks. Does not depend on a fabric.
#include "perf/replay/fold.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>

#include "perf/cli/bytes.h"

namespace weft::replay {
namespace {

int largest_divisor(int of, int at_most) {
  int d = std::min(of, at_most);
  while (of % d != 0) --d;
  return d;
}

void fold_alike(JobTrace& trace, int ranks) {
  for (TraceGroup& group : trace.groups) {
    const int size = largest_divisor(ranks, static_cast<int>(group.lists[0].size()));
    const int step = group.neighbours ? 1 : ranks / size;
    group.lists.clear();
    for (Rank first = 0; first < ranks; ++first) {
      if (first / step % size != 0) continue;
      std::vector<Rank>& list = group.lists.emplace_back();
      for (int i = 0; i < size; ++i) list.push_back(first + i * step);
    }
  }
  trace.program_of.resize(static_cast<std::size_t>(ranks));
  for (TraceNode& node : trace.programs[0]) node.root = 0;
}

void fold_others(JobTrace& trace, const JobTrace& whole, int ranks) {
  std::map<Rank, Rank> as;  // the playing rank, by rank of the job
  for (Rank r = 0; r < ranks; ++r)
    as[static_cast<Rank>(static_cast<std::int64_t>(r) * whole.ranks / ranks)] = r;
  for (TraceGroup& group : trace.groups) {
    for (auto& list : group.lists) {
      std::vector<Rank> kept;
      for (const Rank r : list)
        if (const auto it = as.find(r); it != as.end()) kept.push_back(it->second);
      list = std::move(kept);
    }
    std::erase_if(group.lists, [](const auto& list) { return list.empty(); });
  }
  trace.programs.clear();
  trace.program_of.clear();
  for (const auto& [old, now] : as) {
    trace.program_of.push_back(static_cast<int>(trace.programs.size()));
    Program& program = trace.programs.emplace_back(whole.program(old));
    for (TraceNode& node : program) {
      if (node.kind == NodeKind::kCollective) {
        const std::vector<Rank>* list = trace.list_of(node.group, now);
        const auto root = as.find(node.root);  // otherwise, use the first rank
        node.root = root != as.end() ? root->second : list != nullptr ? (*list)[0] : 0;
      } else if (node.kind != NodeKind::kCompute) {
        if (const auto peer = as.find(node.peer); peer != as.end()) {
          node.peer = peer->second;
          continue;
        }
        ++trace.left_out[fmt::format("{} with a rank that is folded away", word_of(key_of(node)))];
        node.kind = NodeKind::kCompute;
        node.compute_us = 0;
      }
    }
  }
}

}  // namespace

JobTrace fold(const JobTrace& whole, int ranks) {
  if (ranks >= whole.ranks) return whole;
  JobTrace trace = whole;
  trace.ranks = ranks;
  if (whole.alike())
    fold_alike(trace, ranks);
  else
    fold_others(trace, whole, ranks);
  trace.notes.push_back(
      fmt::format("folded: {} ranks play the {} of the trace; groups shrink, messages keep their "
                  "bytes",
                  ranks, whole.ranks));
  drop_lonely_calls(trace);
  check_that_it_ends(trace);
  return trace;
}

void cut_messages(JobTrace& trace, std::uint64_t most) {
  std::uint64_t cut = 0;
  for (Program& program : trace.programs)
    for (TraceNode& node : program)
      if (node.kind != NodeKind::kCompute && node.bytes > most) {
        node.bytes = most;
        ++cut;
      }
  if (cut > 0)
    trace.notes.push_back(
        fmt::format("{} calls are of more than {} bytes and are played in that "
                    "size; --most-bytes changes it",
                    cut, format_bytes(most)));
}

}  // namespace weft::replay
