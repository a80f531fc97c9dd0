// The rail-aware algorithms exchange within the host, then along each rail, then within the host
// again. A rank exchanges with other hosts only at its own local index, so no message crosses
// between rails, and hosts exchange the minimum number of bytes (2 (H-1)/H of the message per host,
// split over its rails). Messages within a host use channel 0, messages along a rail channel 1.
#include <algorithm>

#include "coll/schedule/building_blocks.h"

namespace weft {
namespace {

using Block = RailBlock;

// Blocks of ranks by rail. A block uses its rank's rail or, if the rank represents no rail, the
// rail that CommonRails::served() assigns. Chunks are ordered by rail, then by host, with the same
// number of chunks for each; blocks are cut into that number of chunks. Thus a rail's part can be
// divided among its hosts.
struct BlocksByRail {
  BlocksByRail(const Shape& shape, const Layout& layout)
      : rails(shape, layout), n(rails.count()), here(rails.host()) {
    std::size_t most = 1;
    for (int l = 0; l < n; ++l)
      for (int h = 0; h < layout.nhosts(); ++h) most = std::max(most, rails.served(l, h).size());
    const int pieces = static_cast<int>(most);
    s = empty_schedule(shape, n * layout.nhosts() * pieces);
    s.packs = most > 1;
    of.resize(static_cast<std::size_t>(shape.nranks));
    Chunks at{0, pieces};
    for (int l = 0; l < n; ++l)
      for (int h = 0; h < layout.nhosts(); ++h, at.first += pieces) {
        const std::vector<Rank>& blocks = rails.served(l, h);
        for (int j = 0; j < static_cast<int>(blocks.size()); ++j) {
          const Chunks mine = of[blocks[j]] = at.part(j, static_cast<int>(blocks.size()));
          s.block.insert(s.block.end(), static_cast<std::size_t>(mine.count), blocks[j]);
        }
      }
    if (most == 1 && std::is_sorted(s.block.begin(), s.block.end())) s.block.clear();
    me = static_cast<int>(std::ranges::find(here, shape.rank) - here.begin());
  }
  Chunks part(int rail) const { return s.all().part(rail, n); }
  bool on_rail() const { return me < n; }
  // Calls f with each other rank of this host whose block uses this rank's rail.
  template <class F>
  void each_guest(const Layout& layout, F f) const {
    if (!on_rail()) return;
    for (const Rank r : rails.served(me, layout.my_host()))
      if (r != here[me]) f(r);
  }
  // The rank of this host that represents the rail used by this rank's block.
  Rank carrier() const { return here[of[here[me]].first / part(0).count]; }

  CommonRails rails;
  int n;                   // rails
  std::vector<Rank> here;  // the ranks of this host, the rails' representatives first
  int me = 0;              // in `here`
  std::vector<Chunks> of;  // by rank: its block
  Schedule s;
};

// Every rank sends its contribution directly to the owner of the block; between hosts this
// multiplies the bytes by the number of ranks per host.
void reduce_in_order(BlocksByRail& b, const Group& world) {
  for (int i = 1; i < world.size(); ++i)
    b.s.send(world.at(world.me + i), b.of[world.at(world.me + i)], kHostChannel);
  for (int i = 1; i < world.size(); ++i)
    b.s.recv_reduce(world.at(world.me - i), b.of[world.at(world.me)], kHostChannel);
}

// If hosts have different numbers of ranks, the message uses the rails that all hosts have, and a
// rank without a rail exchanges only within its host.
template <Along kWay>
Schedule all_reduce_schedule(const Shape& any) {
  if (!slow_hosts(any).empty())
    return unequal_ports_all_reduce(any, reduce_scatter_along(kWay), all_gather_along(kWay));
  const RailOrder order(any, kWay);
  const Shape& shape = order.shape();
  const Layout layout(shape);
  const CommonRails rails(shape, layout);
  const int n = rails.count(), h = layout.my_host();
  Schedule s = parts_by_rail(shape, n, layout.nhosts());
  const std::vector<Rank> here = rails.host();
  const int me = static_cast<int>(std::ranges::find(here, shape.rank) - here.begin());
  if (shape.deterministic) {
    // Chunk l * H + h is sent directly to host h's rank on rail l.
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
    const Chunks mine = s.all().part(me, n);
    if (!shape.deterministic) order.reduce_scatter(s, rails.rail(me), h, mine);
    order.all_gather(s, rails.rail(me), h, mine);
  }
  gather_from_owners(s, {here, me}, n);
  return s;
}

template <Along kWay>
Schedule reduce_scatter_schedule(const Shape& any) {
  const RailOrder order(any, kWay);
  const Layout layout(order.shape());
  BlocksByRail b(order.shape(), layout);
  if (any.deterministic) {
    reduce_in_order(b, layout.world());
    return b.s;
  }
  reduce_to_owners(b.s, {b.here, b.me}, b.n);
  if (b.on_rail())
    order.reduce_scatter(b.s, b.rails.rail(b.me), layout.my_host(), b.part(b.me));
  else
    b.s.recv(b.carrier(), b.of[any.rank], kHostChannel);
  b.each_guest(layout, [&](Rank guest) { b.s.send(guest, b.of[guest], kHostChannel); });
  return b.s;
}

// Along the rail, the sums travel around the ring, for one destination host after the other. The
// ranks of a host reduce their part of a sum just before it is sent, so a rank holds few sums at a
// time, and these share slots.
Schedule rail_ring_reduce_scatter_schedule(const Shape& any) {
  if (any.deterministic || !uniform_hosts(any)) return reduce_scatter_schedule<Along::kRing>(any);
  constexpr int kPlaces = 3;
  const RailOrder order(any, Along::kRing);
  const Layout layout(order.shape());
  Schedule s = BlocksByRail(order.shape(), layout).s;
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

// Within the host, a rank forwards blocks in the order in which they arrive along the rail. All
// ranks of the host use the same order, so no block waits for a later one.
template <Along kWay>
Schedule all_gather_schedule(const Shape& any) {
  const RailOrder order(any, kWay);
  const Layout layout(order.shape());
  BlocksByRail b(order.shape(), layout);
  Schedule& s = b.s;
  if (!b.on_rail()) s.send(b.carrier(), b.of[any.rank], kHostChannel);
  b.each_guest(layout, [&](Rank guest) { s.recv(guest, b.of[guest], kHostChannel); });
  const std::size_t before = s.steps.size();
  // `arrivals`: the chunks that a rank of `rail` holds at the end, in order of arrival.
  const Group host{b.here, b.me};
  const int rail = b.on_rail() ? b.me : 0, h = layout.my_host();
  const Chunks mine = b.part(rail);
  order.all_gather(s, b.rails.rail(rail), h, mine);
  std::vector<Chunks> arrivals = {mine.part(h, layout.nhosts())};
  for (std::size_t i = before; i < s.steps.size(); ++i)
    if (s.steps[i].op == Op::kRecv) arrivals.push_back(s.steps[i].at);
  if (!b.on_rail()) s.steps.resize(before);
  // Skips the block that belongs to rank `to`.
  const auto each = [&](int owner, Rank to, auto f) {
    for (const Chunks at : arrivals) {
      const Chunks there{at.first + b.part(owner).first - mine.first, at.count}, own = b.of[to];
      if (own.first < there.first || own.end() > there.end()) {
        f(there);
        continue;
      }
      if (own.first > there.first) f(Chunks{there.first, own.first - there.first});
      if (own.end() < there.end()) f(Chunks{own.end(), there.end() - own.end()});
    }
  };
  for (int i = 1; i < host.size() && b.on_rail(); ++i)
    each(b.me, host.at(b.me + i),
         [&](Chunks at) { s.send(host.at(b.me + i), at, kHostChannel, true); });
  for (int i = 1; i < host.size(); ++i)
    if (const int owner = (b.me - i + host.size()) % host.size(); owner < b.n)
      each(owner, any.rank, [&](Chunks at) { s.recv(host.at(owner), at, kHostChannel, true); });
  return s;
}

// Every rank reduces the values of its host, then the ranks of each rail reduce the sums of all
// hosts.
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

// The first rank of each host represents the host, which minimizes the number of messages between
// hosts. Supports any shape. In deterministic mode rank 0 reduces for all ranks.
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
  // Local index 0 exists on every host, so its rail is complete even if hosts differ in size.
  if (layout.my_local() == 0) kBetweenHosts(s, layout.rail(), s.all(), kRailChannel);
  flat_broadcast(s, layout.host(), 0, s.all(), kHostChannel);
  return s;
}

}  // namespace

std::span<const Algorithm> rail_algorithms() {
  static constexpr Algorithm kAlgorithms[] = {
      {"hierarchical", Collective::kAllReduce,
       "direct inside the host, a ring along each rail, direct inside the host", any_shape,
       all_reduce_schedule<Along::kRing>},
      {"hierarchical_hd", Collective::kAllReduce,
       "direct inside the host, halving-doubling along each rail, direct inside the host",
       any_shape, all_reduce_schedule<Along::kHalving>},
      {"hierarchical_hd4", Collective::kAllReduce,
       "like hierarchical_hd with three partners in a step: half as many steps, more messages",
       any_shape, all_reduce_schedule<Along::kHalving4>},
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
       "a ring along each rail, then direct inside the host", any_shape,
       all_gather_schedule<Along::kRing>},
      {"hierarchical_hd", Collective::kAllGather,
       "doubling along each rail, then direct inside the host", any_shape,
       all_gather_schedule<Along::kHalving>},
      {"hierarchical_hd4", Collective::kAllGather,
       "like hierarchical_hd with three partners in a step: half as many steps, more messages",
       any_shape, all_gather_schedule<Along::kHalving4>},
      {"hierarchical", Collective::kReduceScatter,
       "direct inside the host, then a ring along each rail", any_shape,
       rail_ring_reduce_scatter_schedule},
      {"hierarchical_hd", Collective::kReduceScatter,
       "direct inside the host, then halving along each rail", any_shape,
       reduce_scatter_schedule<Along::kHalving>},
      {"hierarchical_hd4", Collective::kReduceScatter,
       "like hierarchical_hd with three partners in a step: half as many steps, more messages",
       any_shape, reduce_scatter_schedule<Along::kHalving4>},
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
