// The rail-aware algorithms work inside the host, along each rail, then inside the host again. A
// rank talks to other hosts only at its own local index, so no message crosses from rail to rail,
// and hosts exchange the fewest bytes possible (facts: 2 (H-1)/H of the message per host, split
// over its rails). Messages inside a host use channel 0, messages along a rail channel 1.
#include <algorithm>

#include "coll/schedule/building_blocks.h"

namespace weft {
namespace {

using Block = void (*)(Schedule&, Group, Chunks, int);

// Part l of the message goes along rail l, cut into `pieces` chunks.
Schedule parts_by_rail(const Shape& shape, const Layout& layout, int pieces) {
  Schedule s = empty_schedule(shape, layout.per_host() * pieces);
  const auto& speed = shape.rail_weight;
  if (static_cast<int>(speed.size()) == layout.per_host() &&
      std::any_of(speed.begin(), speed.end(), [&](double w) { return w != speed[0]; }))
    for (int c = 0; c < s.nchunks; ++c) s.weight.push_back(speed[c / pieces]);
  return s;
}

// The same chunks where they are ranks' blocks: chunk l * H + h is that of local index l of host h.
Schedule blocks_by_rail(const Shape& shape, const Layout& layout) {
  Schedule s = empty_schedule(shape, shape.nranks);
  for (int l = 0; l < layout.per_host(); ++l)
    for (const auto& ranks : layout.hosts()) s.block.push_back(ranks[l]);
  if (std::is_sorted(s.block.begin(), s.block.end())) s.block.clear();
  return s;
}

Chunks my_part(const Schedule& s, const Layout& layout) {
  return s.all().part(layout.my_local(), layout.per_host());
}

// Leaves chunk l * H + h, reduced, at local index l of host h. Deterministic: contributions go
// straight there; between hosts that is as many times the bytes as a host has ranks.
template <Block kRailReduceScatter>
void reduce_scatter(Schedule& s, const Shape& shape, const Layout& layout) {
  if (!shape.deterministic) {
    direct_reduce_scatter(s, layout.host(), s.all(), kHostChannel);
    kRailReduceScatter(s, layout.rail(), my_part(s, layout), kRailChannel);
    return;
  }
  std::vector<Rank> owners;
  for (int l = 0; l < layout.per_host(); ++l)
    for (const auto& ranks : layout.hosts()) owners.push_back(ranks[l]);
  const int me = layout.my_local() * layout.nhosts() + layout.my_host();
  direct_reduce_scatter(s, {owners, me}, s.all(), kHostChannel);
}

template <Block kRailReduceScatter, Block kRailAllGather>
Schedule all_reduce_schedule(const Shape& shape) {
  const Layout layout(shape);
  Schedule s = parts_by_rail(shape, layout, layout.nhosts());
  const Chunks mine = my_part(s, layout);
  reduce_scatter<kRailReduceScatter>(s, shape, layout);
  kRailAllGather(s, layout.rail(), mine, kRailChannel);
  direct_all_gather(s, layout.host(), s.all(), kHostChannel);
  return s;
}

template <Block kRailReduceScatter>
Schedule reduce_scatter_schedule(const Shape& shape) {
  const Layout layout(shape);
  Schedule s = blocks_by_rail(shape, layout);
  reduce_scatter<kRailReduceScatter>(s, shape, layout);
  return s;
}

template <Block kRailAllGather>
Schedule all_gather_schedule(const Shape& shape) {
  const Layout layout(shape);
  Schedule s = blocks_by_rail(shape, layout);
  kRailAllGather(s, layout.rail(), my_part(s, layout), kRailChannel);
  direct_all_gather(s, layout.host(), s.all(), kHostChannel);
  return s;
}

// The root's host gets everything from the root, and first to each rank the part that this rank
// sends along its rail; the other hosts put the parts together.
Schedule broadcast_schedule(const Shape& shape) {
  const Layout layout(shape);
  Schedule s = parts_by_rail(shape, layout, 1);
  const Chunks all = s.all(), mine = my_part(s, layout);
  const int g = layout.per_host(), root_host = layout.host_of(shape.root);
  const int root = layout.local_of(shape.root);
  const bool at_home = layout.my_host() == root_host;
  const auto before = [&](Chunks c) { return Chunks{0, c.first}; };
  const auto after = [&](Chunks c) { return Chunks{c.end(), all.count - c.end()}; };
  if (at_home && shape.rank == shape.root)
    for (int i = 1; i < g; ++i)
      s.send(layout.host().at(root + i), all.part(root + i, g), kHostChannel);
  else if (at_home)
    s.recv(shape.root, mine, kHostChannel);
  chain_broadcast(s, layout.rail(), root_host, mine, kRailChannel);
  if (!at_home) {
    direct_all_gather(s, layout.host(), all, kHostChannel);
  } else if (shape.rank == shape.root) {
    for (int i = 1; i < g; ++i) {
      const Chunks theirs = all.part(root + i, g);
      s.send(layout.host().at(root + i), before(theirs), kHostChannel);
      s.send(layout.host().at(root + i), after(theirs), kHostChannel);
    }
  } else {
    s.recv(shape.root, before(mine), kHostChannel);
    s.recv(shape.root, after(mine), kHostChannel);
  }
  return s;
}

// Every rank learns its host's sum, then every rail on its own learns all hosts' sums.
Schedule small_all_reduce_schedule(const Shape& shape) {
  const Layout layout(shape);
  Schedule s = empty_schedule(shape, 1);
  if (shape.deterministic) {
    flat_all_reduce(s, layout.world(), s.all(), kHostChannel);
    return s;
  }
  flat_all_reduce(s, layout.host(), s.all(), kHostChannel);
  recursive_doubling_all_reduce(s, layout.rail(), s.all(), kRailChannel);
  return s;
}

Schedule barrier_schedule(const Shape& shape) {
  const Layout layout(shape);
  Schedule s = empty_schedule(shape, 1);
  flat_all_reduce(s, layout.host(), s.all(), kHostChannel);
  dissemination_barrier(s, layout.rail(), s.all(), kRailChannel);
  return s;
}

// The first rank of each host stands for it: fewest messages between hosts. Any shape.
// Deterministic: rank 0 stands for all.
template <Block kBetweenHosts>
Schedule leader_schedule(const Shape& shape) {
  const Layout layout(shape);
  Schedule s = empty_schedule(shape, 1);
  if (shape.deterministic && kBetweenHosts != Block{dissemination_barrier}) {
    flat_reduce(s, layout.world(), 0, s.all(), kHostChannel);
    flat_broadcast(s, layout.world(), 0, s.all(), kHostChannel);
    return s;
  }
  flat_reduce(s, layout.host(), 0, s.all(), kHostChannel);
  // Local index 0 exists on every host, so its rail is whole even where hosts differ in size.
  if (layout.my_local() == 0) kBetweenHosts(s, layout.rail(), s.all(), kRailChannel);
  flat_broadcast(s, layout.host(), 0, s.all(), kHostChannel);
  return s;
}

}  // namespace

std::span<const Algorithm> rail_algorithms() {
  static constexpr Algorithm kAlgorithms[] = {
      {"hierarchical", Collective::kAllReduce,
       "direct inside the host, a ring along each rail, direct inside the host", uniform_hosts,
       all_reduce_schedule<ring_reduce_scatter, ring_all_gather>},
      {"hierarchical_hd", Collective::kAllReduce,
       "direct inside the host, halving-doubling along each rail, direct inside the host",
       uniform_hosts, all_reduce_schedule<halving_reduce_scatter<2>, doubling_all_gather<2>>},
      {"hierarchical_hd4", Collective::kAllReduce,
       "like hierarchical_hd with three partners in a step: half as many steps, more messages",
       uniform_hosts, all_reduce_schedule<halving_reduce_scatter<4>, doubling_all_gather<4>>},
      {"hierarchical_rd", Collective::kAllReduce,
       "flat inside the host, then recursive doubling along each rail: for small messages",
       uniform_hosts, small_all_reduce_schedule},
      {"hierarchical_leader", Collective::kAllReduce,
       "to each host's first rank, recursive doubling among these, back: few messages", any_shape,
       leader_schedule<recursive_doubling_all_reduce>},
      {"tree", Collective::kAllReduce,
       "to each host's first rank, up and down a binomial tree of these, back: fewest messages",
       any_shape, leader_schedule<tree_all_reduce>},
      {"hierarchical", Collective::kAllGather,
       "a ring along each rail, then direct inside the host", uniform_hosts,
       all_gather_schedule<ring_all_gather>},
      {"hierarchical_hd", Collective::kAllGather,
       "doubling along each rail, then direct inside the host", uniform_hosts,
       all_gather_schedule<doubling_all_gather<2>>},
      {"hierarchical_hd4", Collective::kAllGather,
       "like hierarchical_hd with three partners in a step: half as many steps, more messages",
       uniform_hosts, all_gather_schedule<doubling_all_gather<4>>},
      {"hierarchical", Collective::kReduceScatter,
       "direct inside the host, then a ring along each rail", uniform_hosts,
       reduce_scatter_schedule<ring_reduce_scatter>},
      {"hierarchical_hd", Collective::kReduceScatter,
       "direct inside the host, then halving along each rail", uniform_hosts,
       reduce_scatter_schedule<halving_reduce_scatter<2>>},
      {"hierarchical_hd4", Collective::kReduceScatter,
       "like hierarchical_hd with three partners in a step: half as many steps, more messages",
       uniform_hosts, reduce_scatter_schedule<halving_reduce_scatter<4>>},
      {"hierarchical", Collective::kBroadcast,
       "scattered over the root's host, a pipeline along each rail, gathered inside the hosts",
       uniform_hosts, broadcast_schedule},
      {"hierarchical", Collective::kBarrier, "inside the host, then along every rail",
       uniform_hosts, barrier_schedule},
      {"hierarchical_leader", Collective::kBarrier,
       "to each host's first rank, dissemination among these, back: few messages", any_shape,
       leader_schedule<dissemination_barrier>},
      {"tree", Collective::kBarrier,
       "to each host's first rank, up and down a binomial tree of these, back: fewest messages",
       any_shape, leader_schedule<tree_all_reduce>},
  };
  return kAlgorithms;
}

}  // namespace weft
