// gather and scatter. The root exchanges blocks either with all ranks directly, or along all rails
// of its host with its local ranks as forwarders, or through a binomial tree whose ranks send the
// blocks of their subtree in one message.
//
// The tree orders the ranks host by host, so with a power of two ranks per host it has the minimum
// number of messages between hosts. Chunk i belongs to the i-th rank in this order.
#include <algorithm>
#include <bit>

#include "coll/schedule/building_blocks.h"

namespace weft {
namespace {

Schedule direct_scatter_schedule(const Shape& shape) {
  Schedule s = empty_schedule(shape, shape.nranks);
  const int n = shape.nranks;
  if (shape.rank != shape.root) {
    s.recv(shape.root, {shape.rank, 1});
    return s;
  }
  for (int i = 1; i < n; ++i) s.send((shape.root + i) % n, {(shape.root + i) % n, 1});
  return s;
}

// Member v, counted from the root, of a binomial tree. Its subtree contains low() members from v
// on; size() limits the subtree to the n members that exist.
struct Subtree {
  int n, root, v;
  int low() const { return v == 0 ? static_cast<int>(std::bit_ceil(unsigned(n))) : v & -v; }
  int size(int of, int mask) const { return std::min(mask, n - of); }
};

// Calls f with the chunks of `count` members from v on, modulo n; all these chunks share one
// message.
template <class F>
void each_range(const Schedule& s, int root, int v, int count, F f) {
  bool joined = false;
  for_cyclic(s.all(), root + v, count, s.nranks, [&](Chunks at) {
    f(at, joined);
    joined = true;
  });
}

struct Tree {
  explicit Tree(const Shape& shape) : layout(shape), group(layout.by_host()) {
    s = empty_schedule(shape, shape.nranks);
    s.packs = true;  // a leaf has only one block
    if (!std::is_sorted(group.ranks.begin(), group.ranks.end()))
      s.block.assign(group.ranks.begin(), group.ranks.end());
    root = static_cast<int>(std::find(group.ranks.begin(), group.ranks.end(), shape.root) -
                            group.ranks.begin());
    tree = {shape.nranks, root, (group.me - root + shape.nranks) % shape.nranks};
  }
  Layout layout;
  Group group;
  Schedule s;
  int root = 0;
  Subtree tree{};
};

Schedule tree_gather_schedule(const Shape& shape) {
  Tree t(shape);
  const int n = t.tree.n, root = t.tree.root, v = t.tree.v;
  for (int mask = 1; mask < t.tree.low() && v + mask < n; mask *= 2)
    each_range(t.s, root, v + mask, t.tree.size(v + mask, mask), [&](Chunks at, bool joined) {
      t.s.recv(t.group.at(root + v + mask), at, 0, joined);
    });
  if (v != 0)
    each_range(t.s, root, v, t.tree.size(v, t.tree.low()), [&](Chunks at, bool joined) {
      t.s.send(t.group.at(root + v - t.tree.low()), at, 0, joined);
    });
  return t.s;
}

Schedule tree_scatter_schedule(const Shape& shape) {
  Tree t(shape);
  const int n = t.tree.n, root = t.tree.root, v = t.tree.v;
  if (v != 0)
    each_range(t.s, root, v, t.tree.size(v, t.tree.low()), [&](Chunks at, bool joined) {
      t.s.recv(t.group.at(root + v - t.tree.low()), at, 0, joined);
    });
  for (int mask = t.tree.low() / 2; mask > 0; mask /= 2)
    if (v + mask < n)
      each_range(t.s, root, v + mask, t.tree.size(v + mask, mask), [&](Chunks at, bool joined) {
        t.s.send(t.group.at(root + v + mask), at, 0, joined);
      });
  return t.s;
}

// The path of a block between the root and a rank of another host, along a rail from `near` on the
// root's host to `far`. If hosts differ in size, the block's owner `end` may differ from `far`.
struct Way {
  Rank near, far, end;
};

// The paths of all blocks between the root's host and the others, host after host, so that all
// rails always have blocks to move.
struct Ways {
  explicit Ways(const Shape& shape) : layout(shape), home(layout.host_of(shape.root)) {
    constexpr int kPlaces = 8;  // slots: a rank forwards few blocks at the same time
    const CommonRails rails(shape, layout);
    s = empty_schedule(shape, shape.nranks);
    s.rail_hops = 1;
    s.place.assign(static_cast<std::size_t>(shape.nranks), -1);
    std::vector<int> on(rails.count(), 0);
    for (int i = 1; i < layout.nhosts(); ++i) {
      const int h = (home + i) % layout.nhosts();
      for (int l = 0; l < rails.count(); ++l)
        for (const Rank end : rails.served(l, h)) {
          all.push_back({rails.rail(l)[home], rails.rail(l)[h], end});
          s.place[static_cast<std::size_t>(end)] = on[l]++ % kPlaces;
        }
    }
  }
  Layout layout;
  int home;
  std::vector<Way> all;
  Schedule s;
};

Schedule rail_scatter_schedule(const Shape& shape) {
  Ways ways(shape);
  Schedule& s = ways.s;
  const Rank me = shape.rank, root = shape.root;
  const auto hop = [&](Rank from, Rank to, Rank block, int channel) {
    if (me == from) s.send(to, {block, 1}, channel);
    if (me == to) s.recv(from, {block, 1}, channel);
  };
  for (const Way& way : ways.all) {
    hop(root, way.near, way.end, kHostChannel);
    hop(way.near, way.far, way.end, kRailChannel);
    hop(way.far, way.end, way.end, kHostChannel);
  }
  for (const Rank end : ways.layout.hosts()[ways.home]) hop(root, end, end, kHostChannel);
  return s;
}

Schedule rail_gather_schedule(const Shape& shape) {
  Ways ways(shape);
  Schedule& s = ways.s;
  const Rank me = shape.rank, root = shape.root;
  const auto hop = [&](Rank from, Rank to, Rank block, int channel) {
    if (me == to) s.recv(from, {block, 1}, channel);
    if (me == from) s.send(to, {block, 1}, channel);
  };
  for (const Way& way : ways.all) {
    hop(way.end, way.far, way.end, kHostChannel);
    hop(way.far, way.near, way.end, kRailChannel);
    hop(way.near, root, way.end, kHostChannel);
  }
  for (const Rank end : ways.layout.hosts()[ways.home]) hop(end, root, end, kHostChannel);
  return s;
}

}  // namespace

std::span<const Algorithm> gather_scatter_algorithms() {
  static constexpr Algorithm kAlgorithms[] = {
      {"direct", Collective::kGather, "every rank sends its block to the root", any_shape,
       one_block_of_root<Cut::kPerRank, direct_gather>},
      {"tree", Collective::kGather, "a binomial tree: ceil(lg n) steps, subtrees in one message",
       any_shape, tree_gather_schedule},
      {"hierarchical", Collective::kGather,
       "along each rail to the root's host, and there to the root", any_shape,
       rail_gather_schedule},
      {"direct", Collective::kScatter, "the root sends every rank its block", any_shape,
       direct_scatter_schedule},
      {"tree", Collective::kScatter, "a binomial tree: ceil(lg n) steps, subtrees in one message",
       any_shape, tree_scatter_schedule},
      {"hierarchical", Collective::kScatter, "to the ranks of the root's host, and along each rail",
       any_shape, rail_scatter_schedule},
  };
  return kAlgorithms;
}

}  // namespace weft
