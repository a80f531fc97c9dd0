// Builds the graph of all ranks' steps, matches the transfers, and visits the events in order.
// check.cc defines how a step changes values.
#include "coll/schedule/check_graph.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <numeric>
#include <tuple>
#include <utility>

namespace weft {
namespace {

int node(int step, StepGraph::Event event) { return 2 * step + event; }

}  // namespace

StepGraph::StepGraph(std::span<const Schedule> schedules) : schedules_(schedules) {
  for (const Schedule& s : schedules) {
    offset_.push_back(nsteps());
    owner_.insert(owner_.end(), s.steps.size(), s.rank);
    for (std::size_t i = 0; i < s.steps.size();) {
      const std::size_t end = s.steps[i].op == Op::kRecvReduce ? reduction_end(s, i) : i + 1;
      last_.insert(last_.end(), end - i, offset_.back() + static_cast<int>(end) - 1);
      i = end;
    }
  }
  partner_.assign(nsteps(), -1);
  previous_.assign(nsteps(), -1);
}

std::string StepGraph::describe(int i) const {
  const Step& s = step(i);
  const char* op = s.op == Op::kSend   ? "send to"
                   : s.op == Op::kRecv ? "recv from"
                                       : "recv_reduce from";
  return fmt::format("step {} of rank {} ({} {}, chunks [{},{}), channel {})",
                     i - offset_[owner(i)], owner(i), op, s.peer, s.at.first, s.at.end(),
                     s.channel);
}

std::string StepGraph::match() {
  // (source, destination, channel) of the message that a step sends or receives
  const auto key = [&](int i) {
    const Step& s = step(i);
    return s.op == Op::kSend ? std::tuple(owner(i), s.peer, s.channel)
                             : std::tuple(s.peer, owner(i), s.channel);
  };
  std::vector<int> receives;
  for (int i = 0; i < nsteps(); ++i) (step(i).op == Op::kSend ? sends_ : receives).push_back(i);
  const auto by_key = [&](int a, int b) { return key(a) < key(b); };
  std::stable_sort(sends_.begin(), sends_.end(), by_key);
  std::stable_sort(receives.begin(), receives.end(), by_key);
  for (auto* list : {&sends_, &receives})
    for (std::size_t i = 1; i < list->size(); ++i)
      if (key((*list)[i - 1]) == key((*list)[i])) previous_[(*list)[i]] = (*list)[i - 1];

  std::size_t i = 0, j = 0;
  while (i < sends_.size() || j < receives.size()) {
    const bool no_send = i == sends_.size(), no_receive = j == receives.size();
    if (no_receive || (!no_send && key(sends_[i]) < key(receives[j])))
      return fmt::format("{} is never received: rank {} has no matching receive",
                         describe(sends_[i]), step(sends_[i]).peer);
    if (no_send || key(receives[j]) < key(sends_[i]))
      return fmt::format("{} waits for a message that rank {} never sends", describe(receives[j]),
                         step(receives[j]).peer);
    if (step(sends_[i]).joined != step(receives[j]).joined)
      return fmt::format("{} and {} do not match: only one of them is joined to the previous step",
                         describe(sends_[i]), describe(receives[j]));
    if (step(sends_[i]).at != step(receives[j]).at)
      return fmt::format("{} and {} do not match: their chunks differ", describe(sends_[i]),
                         describe(receives[j]));
    partner_[sends_[i]] = receives[j];
    partner_[receives[j]] = sends_[i];
    if (previous_[sends_[i]] < 0) channel_begin_.push_back(static_cast<int>(i));
    ++i, ++j;
  }
  channel_begin_.push_back(static_cast<int>(sends_.size()));
  return {};
}

// Calls f(earlier step, later step), once per pair.
template <class F>
void StepGraph::each_data_edge(Rank rank, F f) const {
  const Schedule& s = schedules_[rank];
  // Per chunk: the last step that wrote it, and a list of the steps that have read it since then.
  struct Reader {
    int step, next;
  };
  std::vector<int> writer(s.nchunks, -1), readers(s.nchunks, -1), told(s.steps.size(), -1);
  std::vector<Reader> pool;
  std::map<int, int> there;  // by place: the chunk that occupies it
  for (int i = 0; i < static_cast<int>(s.steps.size()); ++i) {
    const auto after = [&](int earlier) {
      if (earlier < 0 || told[earlier] == i) return;
      told[earlier] = i;
      f(offset_[rank] + earlier, offset_[rank] + i);
    };
    const Step& step = s.steps[i];
    for (int c = step.at.first; c < step.at.end(); ++c) {
      if (step.op == Op::kSend) {
        after(writer[c]);
        pool.push_back({i, readers[c]});
        readers[c] = static_cast<int>(pool.size()) - 1;
        continue;
      }
      if (readers[c] < 0) after(writer[c]);  // otherwise the writer's readers already precede it
      for (int r = readers[c]; r >= 0; r = pool[r].next) after(pool[r].step);
      if (!s.place.empty() && s.place[c] >= 0) {
        const int before = std::exchange(there.try_emplace(s.place[c], c).first->second, c);
        if (before != c) {
          after(writer[before]);
          for (int r = readers[before]; r >= 0; r = pool[r].next) after(pool[r].step);
        }
      }
      writer[c] = i;
      readers[c] = -1;
    }
  }
}

// The first step of the message that step i is joined to.
int StepGraph::head(int i) const {
  while (step(i).joined) --i;
  return i;
}

template <class F>
void StepGraph::each_edge(int credits, F f) const {
  for (const Schedule& s : schedules_)
    each_data_edge(s.rank, [&](int earlier, int later) {
      const bool takes_first = step(later).op == Op::kRecvReduce;
      f(node(earlier, kDone), node(later, takes_first ? kDone : kPosted));
      // The message waits for the data of all its steps.
      if (step(later).joined && head(later) > earlier)
        f(node(earlier, kDone), node(head(later), kPosted));
    });
  for (int i = 0; i < nsteps(); ++i) {
    f(node(i, kPosted), node(i, kDone));
    const bool sends = step(i).op == Op::kSend;
    if (const int before = previous_[i]; before >= 0)
      f(sends ? node(before, kPosted) : node(last_[before], kDone), node(i, kPosted));
    if (sends) f(node(i, kPosted), node(partner_[i], kPosted));
  }
  for (std::size_t k = 0; k + 1 < channel_begin_.size(); ++k) {
    const int begin = channel_begin_[k], end = channel_begin_[k + 1];
    for (int i = begin; i < end; ++i)
      if (i - begin >= credits)
        f(node(partner_[sends_[i - credits]], kPosted), node(sends_[i], kDone));
  }
}

std::string StepGraph::run(int credits, const std::function<std::string(int, Event)>& visit) const {
  const int nodes = 2 * nsteps();
  std::vector<int> waiting(nodes, 0), begin(nodes + 1, 0);
  each_edge(credits, [&](int from, int to) {
    ++begin[from + 1];
    ++waiting[to];
  });
  std::partial_sum(begin.begin(), begin.end(), begin.begin());
  std::vector<int> successors(begin[nodes]), fill(begin.begin(), begin.end() - 1);
  each_edge(credits, [&](int from, int to) { successors[fill[from]++] = to; });

  std::vector<int> queue;
  queue.reserve(nodes);
  for (int v = 0; v < nodes; ++v)
    if (waiting[v] == 0) queue.push_back(v);
  for (std::size_t head = 0; head < queue.size(); ++head) {
    const int v = queue[head];
    if (std::string fault = visit(v / 2, static_cast<Event>(v % 2)); !fault.empty()) return fault;
    for (int i = begin[v]; i < begin[v + 1]; ++i)
      if (--waiting[successors[i]] == 0) queue.push_back(successors[i]);
  }
  return static_cast<int>(queue.size()) == nodes ? std::string{} : deadlock(credits, waiting);
}

// Walks back from an event that never happened, each time to an event that it depends on, until an
// event repeats, which closes the cycle.
std::string StepGraph::deadlock(int credits, const std::vector<int>& waiting) const {
  std::vector<int> cause(waiting.size(), -1);
  each_edge(credits, [&](int from, int to) {
    if (waiting[from] > 0 && cause[to] < 0) cause[to] = from;
  });
  int v = static_cast<int>(
      std::find_if(waiting.begin(), waiting.end(), [](int w) { return w > 0; }) - waiting.begin());
  std::vector<bool> seen(waiting.size());
  for (; !seen[v]; v = cause[v]) seen[v] = true;
  std::vector<int> cycle;  // steps
  for (int first = v; cycle.empty() || v != first; v = cause[v])
    if (cycle.empty() || cycle.back() != v / 2) cycle.push_back(v / 2);
  const auto lowest = std::min_element(cycle.begin(), cycle.end());
  std::rotate(cycle.begin(), lowest, cycle.end());
  constexpr std::size_t kShown = 4;
  std::string text = fmt::format("deadlock with {} credits: {}", credits, describe(cycle[0]));
  for (std::size_t i = 1; i < std::min(cycle.size(), kShown); ++i)
    text += " waits for " + describe(cycle[i]) + ", which";
  if (cycle.size() > kShown)
    text += fmt::format(" waits for {} more, which", cycle.size() - kShown);
  return text + (cycle.size() == 1 ? " waits for itself" : " waits for the first");
}

}  // namespace weft
