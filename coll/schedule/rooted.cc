// Broadcast and reduce along all rails that the hosts have in common: part l of the message uses
// rail l, over a circulant graph of the hosts.
//
// The root's own links are the bottleneck, since all rails of its host need their parts from the
// root: it sends each part once. The other ranks of its host forward their parts to each other; the
// part that the root itself sends along its rail reaches them through a chain. Reduce runs the same
// steps in reverse.
#include <algorithm>
#include <utility>

#include "coll/schedule/building_blocks.h"

namespace weft {
namespace {

// A circulant graph is a pipeline without the length of a chain: J. L. Traeff, "Fast(er)
// Construction of Round-optimal n-Block Broadcast Schedules", IEEE Cluster 2022. In slot k of every
// q = ceil(lg n) slots, member v, counted from the root, sends a piece to v + skip(k) and receives
// one from v - skip(k); in q slots it receives one piece of every class modulo q. The pieces of
// each class follow their own tree of depth q or q + 1; each member has a different parent in each
// of the q trees, and no member sends more bytes than the message has. The engine's rounds, each
// with one piece of every class, form the pipeline. A reduction runs in the opposite direction.
class Circulant {
 public:
  explicit Circulant(int n) : n_(n), skip_{n} {
    while (skip_.back() > 1) skip_.push_back((skip_.back() + 1) / 2);
    std::ranges::reverse(skip_);
  }
  int slots() const { return static_cast<int>(skip_.size()) - 1; }
  int skip(int slot) const { return skip_[static_cast<std::size_t>(slot)]; }
  // The class that member v > 0 receives in each slot.
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
    // Past the last slot: larger than any distance.
    return slot < skip_.size() ? skip_[slot] : 3 * n_;
  }
  // The class whose piece reaches v from the root in the fewest slots: the last term of the greedy
  // sum of skips that equals v.
  int root_class(int v) const {
    int k = slots() - 1;
    while (skip(k) != v) {
      if (skip(k) < v) v -= skip(k);
      --k;
    }
    return k;
  }
  // Searches greedy sums of skips, depth first, from `at` to below `end`, and selects for each slot
  // the nearest member that can have sent a class that is still missing.
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

// The children of member v in a broadcast and the class that v sends to each, slot by slot.
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

namespace {

struct Rooted {
  explicit Rooted(const Shape& shape)
      : layout(shape), rails(shape, layout), n(rails.count()), here(rails.host()) {
    s = parts_by_rail(shape, n, circulant_classes(layout.nhosts()));
    s.rail_hops = circulant_classes(layout.nhosts());
    me = find(shape.rank);
    home = layout.host_of(shape.root);
    at_home = layout.my_host() == home;
    if (!at_home) return;
    root = find(shape.root);
    others = here;
    others.erase(others.begin() + root);
  }
  int find(Rank r) const { return static_cast<int>(std::ranges::find(here, r) - here.begin()); }
  Chunks part(int i) const { return s.all().part(i, n); }
  bool is_root() const { return at_home && me == root; }
  Group host() const { return {here, me}; }
  Group rail() const { return {rails.rail(me), layout.my_host()}; }
  // Calls f(to, from), indices into `here`, for the other ranks of the root's host except the root.
  template <class F>
  void each_other(F f) const {
    const int size = static_cast<int>(others.size()), at = me - (me > root);
    const Group g{others, at};
    for (int i = 1; i < size; ++i) f(find(g.at(at + i)), find(g.at(at - i)));
  }

  Layout layout;
  CommonRails rails;
  int n;  // rails
  // The ranks of this host; the ranks of the root's host except the root.
  std::vector<Rank> here, others;
  Schedule s;
  int me = 0, root = -1, home = 0;
  bool at_home = false;
};

Schedule broadcast_schedule(const Shape& shape) {
  Rooted r(shape);
  Schedule& s = r.s;
  if (r.is_root())
    for (int i = 1; i <= r.n; ++i) s.send(r.here[(r.me + i) % r.n], r.part(r.me + i), kHostChannel);
  else if (r.at_home && r.me < r.n)
    s.recv(shape.root, r.part(r.me), kHostChannel);
  if (r.me < r.n) circulant_broadcast(s, r.rail(), r.home, r.part(r.me), kRailChannel);
  if (!r.at_home) {
    gather_from_owners(s, r.host(), r.n);
    return s;
  }
  if (r.root < r.n) chain_broadcast(s, r.host(), r.root, r.part(r.root), kHostChannel);
  if (r.is_root()) return s;
  r.each_other([&](int to, int) {
    if (r.me < r.n) s.send(r.here[to], r.part(r.me), kHostChannel);
  });
  r.each_other([&](int, int from) {
    if (from < r.n) s.recv(r.here[from], r.part(from), kHostChannel);
  });
  return s;
}

// Contributions travel unreduced to the ranks of the root's host that represent the rails.
void reduce_in_order(Rooted& r, const Shape& shape) {
  std::vector<Rank> owners;
  for (int l = 0; l < r.n; ++l) owners.push_back(r.rails.rail(l)[r.home]);
  for (int i = 0; i < r.n; ++i) {
    const int l = (r.layout.my_local() + i) % r.n;
    r.s.send(owners[l], r.part(l), kHostChannel);
  }
  if (!r.at_home || r.me >= r.n) return;
  for (int i = 1; i < shape.nranks; ++i)
    r.s.recv_reduce(r.layout.world().at(shape.rank - i), r.part(r.me), kHostChannel);
}

Schedule reduce_schedule(const Shape& shape) {
  Rooted r(shape);
  Schedule& s = r.s;
  const bool in_order = shape.deterministic;
  if (in_order) {
    reduce_in_order(r, shape);
  } else if (!r.at_home) {
    reduce_to_owners(s, r.host(), r.n);
  } else {
    if (!r.is_root()) {
      r.each_other([&](int to, int) {
        if (to < r.n) s.send(r.here[to], r.part(to), kHostChannel);
      });
      r.each_other([&](int, int from) {
        if (r.me < r.n) s.recv_reduce(r.here[from], r.part(r.me), kHostChannel);
      });
    }
    if (r.root < r.n) chain_reduce(s, r.host(), r.root, r.part(r.root), kHostChannel);
  }
  if (r.me < r.n && !in_order) circulant_reduce(s, r.rail(), r.home, r.part(r.me), kRailChannel);
  if (!r.at_home) return s;
  if (!r.is_root()) {
    if (r.me < r.n) s.send(shape.root, r.part(r.me), kHostChannel);
    return s;
  }
  for (int i = 1; i <= r.n; ++i) {
    const int from = (r.me + i) % r.n;
    if (in_order)
      s.recv(r.here[from], r.part(from), kHostChannel);
    else
      s.recv_reduce(r.here[from], r.part(from), kHostChannel);
  }
  return s;
}

}  // namespace

std::span<const Algorithm> rooted_algorithms() {
  static constexpr Algorithm kAlgorithms[] = {
      {"hierarchical", Collective::kBroadcast,
       "scattered over the root's host, a circulant pipeline along each rail, gathered inside the "
       "hosts",
       any_shape, broadcast_schedule},
      {"hierarchical", Collective::kReduce,
       "direct inside the host, a circulant pipeline along each rail to the root's host, collected "
       "there",
       any_shape, reduce_schedule},
  };
  return kAlgorithms;
}

}  // namespace weft
