// Broadcast and reduce along all rails that the hosts have in common: part l of the message goes
// along rail l, by a circulant graph of the hosts.
//
// The root's own links are the narrow place, since all rails of its host want their parts from it:
// it hands each part out once. Its neighbors pass on to each other what they have; the part that
// the root itself sends along its rail reaches them by a chain. Reduce is the mirror image.
#include <algorithm>

#include "coll/schedule/common_rails.h"

namespace weft {
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
  // Calls f(to, from), indices into `here`, for the other ranks of the root's host but the root.
  template <class F>
  void each_other(F f) const {
    const int size = static_cast<int>(others.size()), at = me - (me > root);
    const Group g{others, at};
    for (int i = 1; i < size; ++i) f(find(g.at(at + i)), find(g.at(at - i)));
  }

  Layout layout;
  CommonRails rails;
  int n;                           // rails
  std::vector<Rank> here, others;  // of this host; the root's host but the root
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

// Contributions go unreduced to the ranks of the root's host that stand for the rails.
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
