// Joins the files of a job into one trace. Does not depend on file formats or on time.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <map>
#include <numeric>
#include <set>
#include <tuple>
#include <utility>

#include "perf/replay/trace.h"
#include "topo/base/status.h"

namespace weft::replay {
namespace {

bool same(const TraceNode& a, const TraceNode& b) {
  const auto all = [](const TraceNode& n) {
    return std::tie(n.kind, n.compute_us, n.collective, n.back, n.type, n.bytes, n.group, n.root,
                    n.peer, n.tag, n.after);
  };
  return all(a) == all(b);
}

// Assigns a rank to every file: every file states its rank, or files are numbered in order.
void number_files(std::vector<RankTrace>& files) {
  std::set<int> seen;
  const bool said = std::ranges::all_of(files, [](const RankTrace& f) { return f.rank >= 0; });
  for (std::size_t i = 0; i < files.size(); ++i) {
    if (!said || files.size() == 1) files[i].rank = static_cast<int>(i);
    if (!seen.insert(files[i].rank).second)
      throw Error(fmt::format("{}: a second file of rank {}; name the files of one job",
                              files[i].file, files[i].rank));
  }
  std::ranges::sort(files, {}, &RankTrace::rank);
}

// A single file stands for all ranks, so its messages to particular ranks cannot be played.
void drop_messages(JobTrace& trace, Program& nodes) {
  for (TraceNode& node : nodes)
    if (node.kind == NodeKind::kSend || node.kind == NodeKind::kRecv) {
      ++trace.left_out[fmt::format("{} with rank {}, whose file is not given",
                                   word_of(key_of(node)), node.peer)];
      node.kind = NodeKind::kCompute;
      node.compute_us = 0;
    }
}

// Extends one list of ranks to lists of the same length and strides that together cover all ranks.
// Throws Error if that is impossible.
std::vector<std::vector<Rank>> tiled(const std::string& file, const std::string& name,
                                     const std::vector<Rank>& list, int ranks) {
  const int size = static_cast<int>(list.size()), step = size > 1 ? list[1] - list[0] : 1;
  std::vector<std::vector<Rank>> lists;
  for (Rank first = 0; step > 0 && first < ranks; ++first) {
    if (first / step % size != 0) continue;
    std::vector<Rank>& next = lists.emplace_back();
    for (int i = 0; i < size; ++i) next.push_back(first + i * step);
  }
  if (step <= 0 || ranks % (size * step) != 0 || std::ranges::find(lists, list) == lists.end())
    throw Error(
        fmt::format("{}: group '{}' of ranks {}: {} ranks cannot be dealt into such groups, "
                    "so that one file cannot stand for all; give the files of all ranks",
                    file, name, fmt::join(list, ","), ranks));
  return lists;
}

class GroupTable {
 public:
  GroupTable(JobTrace& trace, const std::vector<RankTrace>& files,
             const std::map<std::string, std::vector<Rank>>& more)
      : trace_(trace), lone_(files.size() == 1) {
    std::vector<Rank> all(static_cast<std::size_t>(trace.ranks));
    std::iota(all.begin(), all.end(), 0);
    trace.groups = {{"all", {all}, true}};
    for (const auto& [name, ranks] : more) add("--groups", name, ranks);
    std::map<std::string, std::vector<Rank>> members;
    for (const RankTrace& file : files) {
      titles_.insert(file.titles.begin(), file.titles.end());
      for (const auto& [name, ranks] : file.groups) add(file.file, name, ranks);
      for (const auto& [name, size] : file.member_of) members[name].push_back(file.rank);
    }
    for (const RankTrace& file : files)
      for (const auto& [name, size] : file.member_of)
        if (size != static_cast<int>(members[name].size()))
          throw Error(
              fmt::format("{}: group '{}' has {} ranks, and {} files say that theirs is one",
                          file.file, name, size, members[name].size()));
    for (const auto& [name, ranks] : members) add(files[0].file, name, ranks);
  }

  int index(const std::string& file, const TraceNode& node, Rank rank) const {
    int found = 0;
    if (const auto it = by_name_.find(node.group_name); it != by_name_.end())
      found = it->second;
    else if (!everybody(node.group_name))
      throw Error(
          fmt::format("{}: {}: there is no group '{}'; there are: {}. --groups FILE names "
                      "the ranks of groups",
                      file, words_of(node), node.group_name, names()));
    if (trace_.list_of(found, rank) == nullptr)
      throw Error(fmt::format("{}: {}: rank {} is not in its group '{}'", file, words_of(node),
                              rank, node.group_name));
    return found;
  }

 private:
  static bool everybody(const std::string& name) {
    return name.empty() || name == "0" || name == "default_pg" || name == "all";
  }

  void add(const std::string& file, const std::string& name, std::vector<Rank> ranks) {
    if (ranks.empty()) return;  // PyTorch's default group: all ranks
    for (const Rank r : ranks)
      if (r < 0 || r >= trace_.ranks)
        throw Error(fmt::format("{}: group '{}': there is no rank {}; the trace has {} ranks", file,
                                name, r, trace_.ranks));
    if (const std::set<Rank> once(ranks.begin(), ranks.end()); once.size() != ranks.size())
      throw Error(fmt::format("{}: group '{}': a rank is in it twice", file, name));
    if (const auto it = by_name_.find(name); it != by_name_.end()) {
      std::vector<std::vector<Rank>>& lists =
          trace_.groups[static_cast<std::size_t>(it->second)].lists;
      if (std::ranges::find(lists, ranks) != lists.end()) return;
      for (const std::vector<Rank>& other : lists)
        for (const Rank r : ranks)
          if (std::ranges::find(other, r) != other.end())
            throw Error(
                fmt::format("{}: group '{}' has other ranks than another file says", file, name));
      lists.push_back(std::move(ranks));  // PyTorch uses one name for all groups of an axis
      return;
    }
    const auto titled = titles_.find(name);
    const std::string& title = titled == titles_.end() ? name : titled->second;
    by_name_[name] = static_cast<int>(trace_.groups.size());
    if (!lone_ && &title != &name)
      for (std::size_t g = 1; g < trace_.groups.size(); ++g)
        if (TraceGroup& other = trace_.groups[g];
            other.name == title && other.lists[0].size() == ranks.size() && apart(other, ranks)) {
          other.lists.push_back(std::move(ranks));  // another list of the same axis
          by_name_[name] = static_cast<int>(g);
          return;
        }
    const bool near = ranks.back() - ranks.front() + 1 == static_cast<int>(ranks.size());
    std::vector<std::vector<Rank>> lists = {ranks};
    if (lone_) lists = tiled(file, name, ranks, trace_.ranks);
    trace_.groups.push_back({title, std::move(lists), near});
  }

  static bool apart(const TraceGroup& group, const std::vector<Rank>& ranks) {
    return std::ranges::none_of(group.lists, [&](const std::vector<Rank>& list) {
      return std::ranges::find_first_of(list, ranks) != list.end();
    });
  }

  std::string names() const {
    std::string text = "all";
    for (const auto& [name, index] : by_name_) text += ", " + name;
    return text;
  }

  JobTrace& trace_;
  const bool lone_;
  std::map<std::string, int> by_name_;
  std::map<std::string, std::string> titles_;
};

int believed(const std::string& file, int ranks) {
  if (ranks <= kMostRanks) return ranks;
  throw Error(
      fmt::format("{}: a job of {} ranks: weft supports up to {}", file, ranks, kMostRanks));
}

int ranks_of(const std::vector<RankTrace>& files, int asked) {
  int said = 0;
  for (const RankTrace& file : files) said = std::max(said, file.job_ranks);
  const int count = static_cast<int>(files.size());
  if (count == 1) {
    if (asked > 0 && said > 0 && asked != said)
      throw Error(fmt::format("--trace-ranks {}: {} says that its job has {} ranks", asked,
                              files[0].file, said));
    return believed(files[0].file, std::max({asked, said, 1}));
  }
  const int last = believed(files[0].file, std::max({said, asked, files.back().rank + 1}));
  std::vector<int> missing;
  for (int r = 0, i = 0; r < last; ++r)
    if (i < count && files[static_cast<std::size_t>(i)].rank == r)
      ++i;
    else
      missing.push_back(r);
  if (missing.empty()) return last;
  const std::size_t more = missing.size() > 8 ? missing.size() - 8 : 0;
  missing.resize(missing.size() - more);
  throw Error(
      fmt::format("{}: the job has {} ranks, and there is no file of rank {}{}; give all, "
                  "or one, which then stands for all",
                  files[0].file, last, fmt::join(missing, ", "),
                  more ? fmt::format(" and {} more", more) : ""));
}

// Gives calls whose bytes differ between ranks (all_to_allv) the mean, which keeps the total.
void even_out(JobTrace& trace, std::vector<RankTrace>& files) {
  struct Sum {
    std::uint64_t bytes = 0, ranks = 0;
    bool differ = false;
  };
  std::map<std::pair<const std::vector<Rank>*, int>, Sum> sums;  // by list and index of the call
  const auto each = [&](const auto& visit) {
    for (RankTrace& file : files) {
      std::map<int, int> calls;  // number of calls, by group
      for (TraceNode& node : file.nodes)
        if (node.kind == NodeKind::kCollective)
          visit(node, sums[{trace.list_of(node.group, file.rank), calls[node.group]++}]);
    }
  };
  each([](const TraceNode& node, Sum& sum) {
    if (!node.may_differ) return;
    sum.differ = sum.differ || (sum.ranks > 0 && sum.bytes != sum.ranks * node.bytes);
    sum.bytes += node.bytes;
    ++sum.ranks;
  });
  std::uint64_t calls = 0;
  for (const auto& [call, sum] : sums) calls += sum.differ;
  each([](TraceNode& node, const Sum& sum) {
    if (node.may_differ && sum.ranks > 0) node.bytes = (sum.bytes + sum.ranks - 1) / sum.ranks;
  });
  if (calls > 0)
    trace.notes.push_back(fmt::format(
        "calls with another size on each rank, which are played with the mean: {}", calls));
}

// Translates a root or peer that is a rank within the node's group to a rank of the job.
void name_ranks(const JobTrace& trace, const GroupTable& table, const RankTrace& file,
                TraceNode& node) {
  const int group = table.index(file.file, node, file.rank);
  const std::vector<Rank>& list = *trace.list_of(group, file.rank);
  Rank& named = node.kind == NodeKind::kCollective ? node.root : node.peer;
  if (named < 0 || named >= static_cast<Rank>(list.size()))
    throw Error(fmt::format("{}: {}: there is no rank {} in its group '{}' of {} ranks", file.file,
                            words_of(node), named, node.group_name, list.size()));
  named = list[static_cast<std::size_t>(named)];
  node.ranks_of_group = false;
}

}  // namespace

JobTrace assemble(std::string format, std::vector<RankTrace> files, int ranks,
                  const std::map<std::string, std::vector<Rank>>& groups) {
  if (files.empty()) throw Error("no trace: name at least one file");
  number_files(files);
  JobTrace trace;
  trace.format = std::move(format);
  trace.ranks = ranks_of(files, ranks);
  const GroupTable table(trace, files, groups);
  const bool lone = files.size() == 1 && trace.ranks > 1;
  for (RankTrace& file : files) {
    for (TraceNode& node : file.nodes) {
      if (node.kind == NodeKind::kCollective) {
        node.group = table.index(file.file, node, file.rank);
        const bool grows =
            node.collective == Collective::kAllGather || node.collective == Collective::kGather;
        if (!node.is_whole && grows) node.bytes *= trace.list_of(node.group, file.rank)->size();
        node.is_whole = true;
      }
      const bool message = node.kind == NodeKind::kSend || node.kind == NodeKind::kRecv;
      if (node.ranks_of_group) name_ranks(trace, table, file, node);
      const Rank named = message ? node.peer : node.kind == NodeKind::kCollective ? node.root : 0;
      if (named < 0 || named >= trace.ranks)
        throw Error(fmt::format("{}: {}: there is no rank {}; the trace has {} ranks", file.file,
                                words_of(node), named, trace.ranks));
    }
    if (const std::uint64_t absent = put_in_order(file.file, file.nodes))
      trace.left_out["dependency on a node that the file does not have"] += absent;
    trace.sends_are_eager = trace.sends_are_eager || file.sends_are_eager;
    for (const auto& [name, count] : file.left_out) trace.left_out[name] += count;
    trace.untimed += file.untimed;
    if (lone) drop_messages(trace, file.nodes);
  }
  even_out(trace, files);
  for (RankTrace& file : files) {
    const auto known = std::ranges::find_if(trace.programs, [&](const Program& program) {
      return std::ranges::equal(program, file.nodes, same);
    });
    trace.program_of.push_back(static_cast<int>(known - trace.programs.begin()));
    if (known == trace.programs.end()) trace.programs.push_back(std::move(file.nodes));
  }
  if (lone) {
    trace.program_of.assign(static_cast<std::size_t>(trace.ranks), 0);
    trace.notes.push_back(
        fmt::format("{} stands for all {} ranks of its job", files[0].file, trace.ranks));
  }
  drop_lonely_calls(trace);
  check_that_it_ends(trace);
  return trace;
}

}  // namespace weft::replay
