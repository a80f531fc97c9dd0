// The rail-aware algorithms work inside the host, along each rail, then inside the host again. A
// rank talks to other hosts only at its own local index, so no message crosses from rail to rail,
// and hosts exchange the fewest bytes possible (facts: 2 (H-1)/H of the message per host, split
// over its rails). Messages inside a host use channel 0, messages along a rail channel 1.
#include <algorithm>

#include "coll/schedule/building_blocks.h"

namespace weft {
namespace {

using Block = RailBlock;

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

// Where hosts have different numbers of ranks, the message goes along the rails that all of them
// have, and a rank that stands for none gives and gets inside its host only.
template <Block kRailReduceScatter, Block kRailAllGather>
Schedule all_reduce_schedule(const Shape& shape) {
  if (!slow_hosts(shape).empty())
    return unequal_ports_all_reduce(shape, kRailReduceScatter, kRailAllGather);
  const Layout layout(shape);
  const CommonRails rails(shape, layout);
  const int n = rails.count(), h = layout.my_host();
  Schedule s = parts_by_rail(shape, n, layout.nhosts());
  const std::vector<Rank> here = rails.host();
  const int me = static_cast<int>(std::ranges::find(here, shape.rank) - here.begin());
  if (shape.deterministic) {
    // Chunk l * H + h straight to rail l's rank of host h.
    std::vector<Rank> all;
    for (int l = 0; l < n; ++l) all.insert(all.end(), rails.rail(l).begin(), rails.rail(l).end());
    const int owners = static_cast<int>(all.size());
    for (const Rank r : layout.world().ranks)
      if (std::find(all.begin(), all.begin() + owners, r) == all.begin() + owners) all.push_back(r);
    const auto at = std::ranges::find(all, shape.rank) - all.begin();
    reduce_to_owners(s, {all, static_cast<int>(at)}, owners);
  } else {
    reduce_to_owners(s, {here, me}, n);
  }
  if (me < n) {
    const Group rail{rails.rail(me), h};
    const Chunks mine = s.all().part(me, n);
    if (!shape.deterministic) kRailReduceScatter(s, rail, mine, kRailChannel);
    kRailAllGather(s, rail, mine, kRailChannel);
  }
  gather_from_owners(s, {here, me}, n);
  return s;
}

template <Block kRailReduceScatter>
Schedule reduce_scatter_schedule(const Shape& shape) {
  const Layout layout(shape);
  Schedule s = blocks_by_rail(shape, layout);
  reduce_scatter<kRailReduceScatter>(s, shape, layout);
  return s;
}

// Along the rail, the sum for one host after the other goes around. The ranks of a host add up
// their part of it just before, so a rank has few sums at a time, and these share places.
Schedule rail_ring_reduce_scatter_schedule(const Shape& shape) {
  if (shape.deterministic) return reduce_scatter_schedule<ring_reduce_scatter>(shape);
  constexpr int kPlaces = 3;
  const Layout layout(shape);
  Schedule s = blocks_by_rail(shape, layout);
  s.place.assign(static_cast<std::size_t>(s.nchunks), -1);
  const Group host = layout.host(), rail = layout.rail();
  const int n = rail.size(), g = host.size();
  for (int i = 0; i < n; ++i) {
    const auto part = [&](int local) { return s.all().part(local, g).part(rail.me - 1 - i, n); };
    const Chunks mine = part(host.me);
    if (i + 1 < n) s.place[static_cast<std::size_t>(mine.first)] = i % kPlaces;
    for (int k = 1; k < g; ++k) s.send(host.at(host.me + k), part(host.me + k), kHostChannel);
    for (int k = 1; k < g; ++k) s.recv_reduce(host.at(host.me - k), mine, kHostChannel);
    if (i > 0) s.recv_reduce(rail.at(rail.me - 1), mine, kRailChannel);
    if (i + 1 < n) s.send(rail.at(rail.me + 1), mine, kRailChannel);
  }
  return s;
}

// Inside the host, blocks go in the order in which they come along the rail, which is the same for
// all ranks of the host: no block waits for one that comes later.
template <Block kRailAllGather>
Schedule all_gather_schedule(const Shape& shape) {
  const Layout layout(shape);
  Schedule s = blocks_by_rail(shape, layout);
  const int g = layout.per_host();
  const Chunks mine = my_part(s, layout);
  kRailAllGather(s, layout.rail(), mine, kRailChannel);
  std::vector<Chunks> arrivals = {mine.part(layout.my_host(), layout.nhosts())};
  for (const Step& step : s.steps)
    if (step.op == Op::kRecv) arrivals.push_back(step.at);
  const Group host = layout.host();
  for (int i = 1; i < g; ++i)
    for (const Chunks at : arrivals) s.send(host.at(host.me + i), at, kHostChannel, true);
  for (int i = 1; i < g; ++i) {
    const int theirs = s.all().part(host.me - i, g).first - mine.first;
    for (const Chunks at : arrivals)
      s.recv(host.at(host.me - i), {at.first + theirs, at.count}, kHostChannel, true);
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
       "direct inside the host, a ring along each rail, direct inside the host", any_shape,
       all_reduce_schedule<ring_reduce_scatter, ring_all_gather>},
      {"hierarchical_hd", Collective::kAllReduce,
       "direct inside the host, halving-doubling along each rail, direct inside the host",
       any_shape, all_reduce_schedule<halving_reduce_scatter<2>, doubling_all_gather<2>>},
      {"hierarchical_hd4", Collective::kAllReduce,
       "like hierarchical_hd with three partners in a step: half as many steps, more messages",
       any_shape, all_reduce_schedule<halving_reduce_scatter<4>, doubling_all_gather<4>>},
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
       rail_ring_reduce_scatter_schedule},
      {"hierarchical_hd", Collective::kReduceScatter,
       "direct inside the host, then halving along each rail", uniform_hosts,
       reduce_scatter_schedule<halving_reduce_scatter<2>>},
      {"hierarchical_hd4", Collective::kReduceScatter,
       "like hierarchical_hd with three partners in a step: half as many steps, more messages",
       uniform_hosts, reduce_scatter_schedule<halving_reduce_scatter<4>>},
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
