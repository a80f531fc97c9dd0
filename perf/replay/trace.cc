// Queries a trace and orders its nodes. Does not depend on file formats or on time.
#include "perf/replay/trace.h"

#include <fmt/format.h>

#include <algorithm>
#include <functional>
#include <queue>
#include <set>
#include <unordered_map>
#include <utility>

#include "topo/base/status.h"

namespace weft::replay {
namespace {

// Describes a cycle of nodes that wait for each other.
std::string circle(const Program& nodes, const std::vector<std::vector<int>>& after,
                   const std::vector<int>& missing) {
  std::size_t at = 0;
  while (missing[at] == 0) ++at;
  std::vector<std::size_t> path;
  while (std::ranges::find(path, at) == path.end()) {
    path.push_back(at);
    for (const int before : after[at])
      if (missing[static_cast<std::size_t>(before)] > 0) {
        at = static_cast<std::size_t>(before);
        break;
      }
  }
  path.erase(path.begin(), std::ranges::find(path, at));
  path.push_back(at);
  std::string text;
  for (std::size_t i = 0; i < std::min<std::size_t>(path.size(), 6); ++i)
    text += fmt::format("{}{}", i == 0 ? "" : " waits for ", words_of(nodes[path[i]]));
  return text + (path.size() > 6 ? " ..." : "");
}

}  // namespace

std::string words_of(const TraceNode& node) {
  return node.name.empty() ? fmt::format("node {}", node.id)
                           : fmt::format("node {} ({})", node.id, node.name);
}

const char* word_of(const CallKey& key) {
  return key.kind == NodeKind::kSend   ? "send"
         : key.kind == NodeKind::kRecv ? "recv"
                                       : name(key.collective);
}

bool JobTrace::alike() const {
  if (programs.size() != 1) return false;
  return std::ranges::all_of(programs[0], [this](const TraceNode& node) {
    if (node.kind == NodeKind::kSend || node.kind == NodeKind::kRecv) return false;
    if (node.kind != NodeKind::kCollective) return true;
    std::size_t members = 0;
    for (const auto& list : groups[static_cast<std::size_t>(node.group)].lists)
      members += list.size();
    return members == static_cast<std::size_t>(ranks);
  });
}

bool JobTrace::empty() const {
  return std::ranges::all_of(programs, [](const Program& program) {
    return std::ranges::all_of(program, [](const TraceNode& node) {
      return node.kind == NodeKind::kCompute && node.compute_us <= 0;
    });
  });
}

const std::vector<Rank>* JobTrace::list_of(int group, Rank r) const {
  for (const auto& list : groups[static_cast<std::size_t>(group)].lists)
    if (std::ranges::find(list, r) != list.end()) return &list;
  return nullptr;
}

std::uint64_t put_in_order(const std::string& file, Program& nodes) {
  std::unordered_map<std::uint64_t, int> by_id;
  for (std::size_t i = 0; i < nodes.size(); ++i)
    if (!by_id.emplace(nodes[i].id, static_cast<int>(i)).second)
      throw Error(fmt::format("{}: {}: a second node of this number", file, words_of(nodes[i])));
  std::vector<std::vector<int>> after(nodes.size()), next(nodes.size());
  std::vector<int> missing(nodes.size(), 0);
  std::uint64_t absent = 0;
  for (std::size_t i = 0; i < nodes.size(); ++i)
    for (const std::uint64_t id : nodes[i].after_ids) {
      const auto it = by_id.find(id);
      if (it == by_id.end()) {
        ++absent;
        continue;
      }
      after[i].push_back(it->second);
      next[static_cast<std::size_t>(it->second)].push_back(static_cast<int>(i));
      ++missing[i];
    }
  std::priority_queue<int, std::vector<int>, std::greater<>> ready;
  for (std::size_t i = 0; i < nodes.size(); ++i)
    if (missing[i] == 0) ready.push(static_cast<int>(i));
  Program ordered;
  std::vector<int> place(nodes.size(), -1);
  while (!ready.empty()) {
    const auto i = static_cast<std::size_t>(ready.top());
    ready.pop();
    place[i] = static_cast<int>(ordered.size());
    for (const int n : next[i])
      if (--missing[static_cast<std::size_t>(n)] == 0) ready.push(n);
    ordered.push_back(nodes[i]);
    ordered.back().after.clear();
    for (const int a : after[i]) ordered.back().after.push_back(place[static_cast<std::size_t>(a)]);
    std::ranges::sort(ordered.back().after);
  }
  if (ordered.size() < nodes.size())
    throw Error(fmt::format("{}: nodes wait for each other in a circle: {}", file,
                            circle(nodes, after, missing)));
  nodes = std::move(ordered);
  return absent;
}

void drop_lonely_calls(JobTrace& trace) {
  for (std::size_t p = 0; p < trace.programs.size(); ++p) {
    const auto first = std::ranges::find(trace.program_of, static_cast<int>(p));
    const auto rank = static_cast<Rank>(first - trace.program_of.begin());
    for (TraceNode& node : trace.programs[p]) {
      if (node.kind != NodeKind::kCollective) continue;
      const std::vector<Rank>* list = trace.list_of(node.group, rank);
      if (list != nullptr && list->size() > 1) continue;
      ++trace.left_out[fmt::format("{} in a group of one rank", word_of(key_of(node)))];
      node.kind = NodeKind::kCompute;
      node.compute_us = 0;
    }
  }
}

CallKey key_of(const TraceNode& node) {
  return {node.kind, node.kind == NodeKind::kCollective ? node.collective : Collective::kSendRecv,
          node.bytes, node.kind == NodeKind::kCollective ? node.group : 0};
}

std::vector<CallKey> keys_of(const JobTrace& trace) {
  std::set<CallKey> keys;
  for (const Program& program : trace.programs)
    for (const TraceNode& node : program)
      if (node.kind != NodeKind::kCompute) keys.insert(key_of(node));
  return {keys.begin(), keys.end()};
}

}  // namespace weft::replay
