// all_to_all: every rank sends a block to every other rank. Chunk source * n + destination is the
// block from rank `source` to rank `destination`.
#include <algorithm>

#include "coll/schedule/building_blocks.h"

namespace weft {
namespace {

// The block from rank `source` to rank `destination`, both modulo n.
struct PairBlocks {
  int n;
  Chunks operator()(Rank source, Rank destination) const {
    const auto around = [this](int r) { return ((r % n) + n) % n; };
    return {around(source) * n + around(destination), 1};
  }
};

Schedule of_blocks(const Shape& shape) {
  return empty_schedule(shape, shape.nranks * shape.nranks);
}

// In step i a rank sends to the rank i positions ahead and receives from the rank i positions
// behind, so that no rank receives from all others at once. If all hosts have the same number of
// ranks, the destination of step i is i / g hosts and i % g local indices ahead. The ranks of a
// host start at different hosts, which also spreads the traffic over pairs of hosts.
Schedule pairwise_schedule(const Shape& shape) {
  Schedule s = of_blocks(shape);
  const PairBlocks block{shape.nranks};
  const Rank me = shape.rank;
  const auto exchange = [&](Rank to, Rank from) {
    s.send(to, block(me, to));
    s.recv(from, block(from, me));
  };
  const Layout layout(shape);
  const int nhosts = layout.nhosts(), g = layout.per_host();
  if (nhosts == 1 || !uniform_hosts(shape)) {
    for (int i = 1; i < shape.nranks; ++i)
      exchange((me + i) % shape.nranks, (me - i + shape.nranks) % shape.nranks);
    return s;
  }
  const int h = layout.my_host(), l = layout.my_local();
  const auto rank = [&](int host, int local) {
    return layout.hosts()[(host % nhosts + nhosts) % nhosts][(local + g) % g];
  };
  for (int i = 0; i < shape.nranks; ++i) {
    const int hosts = i / g, locals = i % g;
    // Local index k is k * nhosts / g hosts ahead of index 0.
    const auto further = [&](int k) { return hosts + k * nhosts / g; };
    const int from = (l - locals + g) % g;
    exchange(rank(h + further(l), l + locals), rank(h - further(from), from));
  }
  return s;
}

// Bruck et al., 1997: a block for the rank at distance d is forwarded in hops, one for each power
// of two in d, smallest first. All blocks that take the same hop share one message.
Schedule bruck_schedule(const Shape& shape) {
  Schedule s = of_blocks(shape);
  const PairBlocks block{shape.nranks};
  const int n = shape.nranks;
  for (int bit = 1; bit < n; bit *= 2)
    for (const bool sends : {true, false}) {
      const Rank from = sends ? shape.rank : (shape.rank - bit + n) % n;
      for (int d = bit; d < n; ++d) {
        if (!(d & bit)) continue;
        const Rank source = from - (d & (bit - 1));
        const Chunks at = block(source + n, source + n + d);
        if (sends)
          s.send((shape.rank + bit) % n, at, 0, true);
        else
          s.recv(from, at, 0, true);
      }
    }
  return s;
}

// A block first moves within its host, to the rank on the destination's rail, then along that rail:
// one message contains the blocks of all ranks of the host. A rank that represents no rail
// (CommonRails::served) receives its blocks from a rank of its host that represents one.
Schedule hierarchical_schedule(const Shape& shape) {
  Schedule s = of_blocks(shape);
  const PairBlocks block{shape.nranks};
  const Layout layout(shape);
  const CommonRails rails(shape, layout);
  const int n = rails.count(), nhosts = layout.nhosts(), h = layout.my_host();
  const std::vector<Rank> here = rails.host();
  const int me = static_cast<int>(std::ranges::find(here, shape.rank) - here.begin());
  const Group host{here, me};
  // Calls f with the blocks that `from` sends to the i-th rank of this host: its own block for that
  // rank, and the blocks that the rank forwards along its rail.
  const auto by_way_of = [&](Rank from, int i, auto f) {
    if (i >= n) return f(block(from, here[i]));
    for (int ahead = 1; ahead <= nhosts; ++ahead) {  // so that hosts do not all send to one
      const int to = (h + ahead) % nhosts;
      for (const Rank end : rails.served(i, to))
        if (to != h || end == here[i]) f(block(from, end));
    }
  };
  for (int i = 1; i < host.size(); ++i) {
    const int to = (me + i) % host.size();
    by_way_of(shape.rank, to, [&](Chunks c) { s.send(here[to], c, kHostChannel, true); });
    const Rank from = host.at(me - i);
    by_way_of(from, me, [&](Chunks c) { s.recv(from, c, kHostChannel, true); });
  }
  const Group rail{rails.rail(me < n ? me : 0), h};
  // A rank forwards its own block first, and then those of its host as they arrive.
  const auto as_they_arrive = [](std::span<const Rank> on_host, Rank by, auto f) {
    const auto size = static_cast<std::ptrdiff_t>(on_host.size());
    const std::ptrdiff_t at = std::ranges::find(on_host, by) - on_host.begin();
    for (std::ptrdiff_t i = 0; i < size; ++i)
      f(on_host[static_cast<std::size_t>((at - i + size) % size)]);
  };
  for (int i = 1; i < nhosts && me < n; ++i) {
    const int there = (h + i) % nhosts, back = (h - i + nhosts) % nhosts;
    for (const Rank end : rails.served(me, there))
      as_they_arrive(layout.host().ranks, shape.rank, [&](Rank from) {
        s.send(rail.at(there), block(from, end), kRailChannel, true);
      });
    for (const Rank end : rails.served(me, h))
      as_they_arrive(layout.hosts()[back], rail.at(back), [&](Rank from) {
        s.recv(rail.at(back), block(from, end), kRailChannel, true);
      });
  }
  // Forwards blocks from the rank on the rail to the ranks of this host that represent no rail.
  for (int l = 0; l < n; ++l)
    for (const Rank end : rails.served(l, h)) {
      const Rank by = rails.rail(l)[h];
      if (end == by || (shape.rank != by && shape.rank != end)) continue;
      bool joined = false;  // steps with only blocks from this host are not joined
      for (Rank from = 0; from < shape.nranks; ++from) {
        if (layout.host_of(from) == h) continue;
        if (shape.rank == by)
          s.send(end, block(from, end), kHostChannel, joined);
        else
          s.recv(by, block(from, end), kHostChannel, joined);
        joined = true;
      }
    }
  return s;
}

}  // namespace

std::span<const Algorithm> all_to_all_algorithms() {
  static constexpr Algorithm kAlgorithms[] = {
      {"pairwise", Collective::kAllToAll, "every rank exchanges with every other", any_shape,
       pairwise_schedule},
      {"bruck", Collective::kAllToAll,
       "ceil(lg n) steps, in each of which half of all blocks move on: for small messages",
       any_shape, bruck_schedule},
      {"hierarchical", Collective::kAllToAll,
       "inside the host to the destination's rail, then along each rail: few messages between "
       "hosts",
       any_shape, hierarchical_schedule},
  };
  return kAlgorithms;
}

}  // namespace weft
