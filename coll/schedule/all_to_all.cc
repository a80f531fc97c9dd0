// all_to_all: every rank has a block for every other rank. Chunk source * n + destination is the
// block that rank `source` has for rank `destination`.
#include "coll/schedule/building_blocks.h"

namespace weft {
namespace {

// The block of one rank for another.
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

// In step i to the rank i further on, from the one i before: nobody is hit by all at once. Between
// uniform hosts a step goes so many hosts and so many local indices further on, and ranks of a host
// begin at different hosts: nor are two hosts' ranks all at each other at once.
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

// Bruck et al., 1997: a block for the rank d further on travels the powers of two that make up d,
// the smallest first. In each step all blocks that go the same way are one message.
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

// First inside the host, to the rank on the destination's rail; then along the rails. What leaves a
// host stays on its rail, in one message for all ranks of this host.
Schedule hierarchical_schedule(const Shape& shape) {
  Schedule s = of_blocks(shape);
  const PairBlocks block{shape.nranks};
  const Layout layout(shape);
  const auto& hosts = layout.hosts();
  const int nhosts = layout.nhosts(), g = layout.per_host(), l = layout.my_local();
  const Group host = layout.host(), rail = layout.rail();
  for (int i = 1; i < g; ++i) {
    const int to = (l + i) % g;
    for (int h = 0; h < nhosts; ++h)
      s.send(host.at(to), block(shape.rank, hosts[h][to]), kHostChannel, true);
    const Rank from = host.at(l - i);
    for (int h = 0; h < nhosts; ++h) s.recv(from, block(from, hosts[h][l]), kHostChannel, true);
  }
  for (int i = 1; i < nhosts; ++i) {
    const Rank to = rail.at(layout.my_host() + i), from = rail.at(layout.my_host() - i);
    for (int k = 0; k < g; ++k) s.send(to, block(host.at(k), to), kRailChannel, true);
    for (int k = 0; k < g; ++k)
      s.recv(from, block(hosts[layout.host_of(from)][k], shape.rank), kRailChannel, true);
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
       uniform_hosts, hierarchical_schedule},
  };
  return kAlgorithms;
}

}  // namespace weft
