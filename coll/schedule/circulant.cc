// Broadcast and reduction along a circulant graph: a pipeline without the length of a chain.
//
// J. L. Traeff, "Fast(er) Construction of Round-optimal n-Block Broadcast Schedules", IEEE Cluster
// 2022. In slot k of every q = ceil(lg n) slots, member v, counted from the root, sends a piece to
// v + skip(k) and gets one from v - skip(k), and in q slots it gets one piece of every class modulo
// q. So the pieces of a class follow a tree of depth q or q + 1 of their own; each member has
// another parent in each of the q trees, and no member sends more than the message. The engine's
// rounds, of one piece of every class, make a pipeline of it. A reduction goes the other way.
#include <algorithm>
#include <utility>

#include "coll/schedule/building_blocks.h"

namespace weft {
namespace {

class Circulant {
 public:
  explicit Circulant(int n) : n_(n), skip_{n} {
    while (skip_.back() > 1) skip_.push_back((skip_.back() + 1) / 2);
    std::ranges::reverse(skip_);
  }
  int slots() const { return static_cast<int>(skip_.size()) - 1; }
  int skip(int slot) const { return skip_[static_cast<std::size_t>(slot)]; }
  // The class of what member v > 0 gets in each slot.
  std::vector<int> classes(int v) const {
    const int q = slots();
    const int first = root_class(v);
    Search search{{}, std::vector<bool>(static_cast<std::size_t>(q + 1), true)};
    search.open[static_cast<std::size_t>(first)] = false;
    find(search, n_ + v, 0, 2 * n_);
    std::ranges::replace(search.found, q, first);
    return search.found;
  }

 private:
  struct Search {
    std::vector<int> found;
    std::vector<bool> open;  // by class, and q: the root
  };
  int skip_or_all(std::size_t slot) const {
    return slot < skip_.size() ? skip_[slot] : 3 * n_;  // past the last slot nothing is near enough
  }
  // The class whose piece comes from the root by the fewest slots: the last of the greedy sum of
  // skips that is v.
  int root_class(int v) const {
    int k = slots() - 1;
    while (skip(k) != v) {
      if (skip(k) < v) v -= skip(k);
      --k;
    }
    return k;
  }
  // Walks greedy sums of skips, depth first, from `at` up to below `end`, and takes for each slot
  // the nearest member from which a class that is still missing can have come.
  void find(Search& search, int v, int at, int end) const {
    for (int e = slots(); e >= 0; --e) {
      const auto slot = [&](std::size_t more) { return skip_or_all(search.found.size() + more); };
      const int next = at + skip(e);
      if (!search.open[static_cast<std::size_t>(e)] || next > v - slot(0) || next >= end) continue;
      if (next <= v - slot(1)) find(search, v, next, end);
      if (at > v - slot(1)) return;
      end = next;
      search.found.push_back(e);
      search.open[static_cast<std::size_t>(e)] = false;
    }
  }

  int n_;
  std::vector<int> skip_;
};

// The children of member v in a broadcast and the class that each gets from it, slot by slot.
std::vector<std::pair<int, int>> children(const Circulant& graph, int n, int v) {
  std::vector<std::pair<int, int>> all;
  for (int k = 0; k < graph.slots(); ++k)
    if (const int child = (v + graph.skip(k)) % n; child != 0)
      all.emplace_back(child, graph.classes(child)[static_cast<std::size_t>(k)]);
  return all;
}

}  // namespace

int circulant_classes(int n) { return std::max(1, Circulant(n).slots()); }

void circulant_broadcast(Schedule& s, Group g, int root, Chunks c, int channel) {
  const int n = g.size(), v = (g.me - root + n) % n;
  const Circulant graph(n);
  const int q = graph.slots();
  if (v > 0)
    for (int k = 0; const int of : graph.classes(v))
      s.recv(g.at(root + v - graph.skip(k++)), c.part(of, q), channel);
  for (const auto& [child, of] : children(graph, n, v))
    s.send(g.at(root + child), c.part(of, q), channel);
}

void circulant_reduce(Schedule& s, Group g, int root, Chunks c, int channel) {
  const int n = g.size(), v = (g.me - root + n) % n;
  const Circulant graph(n);
  const int q = graph.slots();
  const std::vector<int> mine = v > 0 ? graph.classes(v) : std::vector<int>{};
  const auto below = children(graph, n, v);
  // The last slot of a broadcast is the first of a reduction.
  for (int k = q - 1; k >= 0; --k) {
    const int of = v > 0 ? mine[static_cast<std::size_t>(k)] : k;
    for (const auto& [child, theirs] : below)
      if (theirs == of) s.recv_reduce(g.at(root + child), c.part(of, q), channel);
    if (v > 0) s.send(g.at(root + v - graph.skip(k)), c.part(of, q), channel);
  }
}

}  // namespace weft
