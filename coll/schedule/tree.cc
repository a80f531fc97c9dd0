// Host-aware binomial trees: one tree connects the hosts, and each host has its own tree.
#include <bit>

#include "coll/schedule/building_blocks.h"

namespace weft {

// With numbers relative to the root, member v receives from v without its lowest bit, and sends to
// the members v + mask for each mask below that bit, the farthest (with the largest subtree) first.
void binomial_broadcast(Schedule& s, Group g, int root, Chunks c, int channel) {
  const int n = g.size();
  const int v = (g.me - root + n) % n;
  int low = static_cast<int>(std::bit_ceil(static_cast<unsigned>(n)));
  if (v != 0) {
    low = v & -v;
    s.recv(g.at(root + v - low), c, channel);
  }
  for (int mask = low / 2; mask > 0; mask /= 2)
    if (v + mask < n) s.send(g.at(root + v + mask), c, channel);
}

// The same tree in reverse, from the leaves to the root: the nearest (and smallest) subtrees
// complete first.
void binomial_reduce(Schedule& s, Group g, int root, Chunks c, int channel) {
  const int n = g.size();
  const int v = (g.me - root + n) % n;
  const int low = v != 0 ? v & -v : static_cast<int>(std::bit_ceil(static_cast<unsigned>(n)));
  for (int mask = 1; mask < low && v + mask < n; mask *= 2)
    s.recv_reduce(g.at(root + v + mask), c, channel);
  if (v != 0) s.send(g.at(root + v - low), c, channel);
}

void tree_all_reduce(Schedule& s, Group g, Chunks c, int channel) {
  binomial_reduce(s, g, 0, c, channel);
  binomial_broadcast(s, g, 0, c, channel);
}

namespace {

Schedule tree_broadcast_schedule(const Shape& shape) {
  Schedule s = empty_schedule(shape, 1);
  const Layout layout(shape);
  const std::vector<Rank> heads = layout.heads(shape.root);
  const Rank head = heads[layout.my_host()];
  if (head == shape.rank)
    binomial_broadcast(s, {heads, layout.my_host()}, layout.host_of(shape.root), s.all(), 1);
  binomial_broadcast(s, layout.host(), layout.local_of(head), s.all(), 0);
  return s;
}

}  // namespace

std::span<const Algorithm> tree_algorithms() {
  static constexpr Algorithm kAlgorithms[] = {
      {"tree", Collective::kBroadcast, "a binomial tree between the hosts, and one inside each",
       any_shape, tree_broadcast_schedule},
  };
  return kAlgorithms;
}

}  // namespace weft
