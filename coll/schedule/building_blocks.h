// The building blocks of algorithms: each adds to a schedule the steps of a group (the world, a
// host, a rail) over a range of chunks. A hierarchical algorithm calls them group after group.
//
// "Member i" is the i-th rank of the group; "part i" is c.part(i, g.size()). A reduce_scatter
// leaves part i, fully reduced, at member i. An all_gather starts from there.
//
// Adjacent recv_reduce steps on one channel into the same chunks are *one* reduction over all their
// sources and the rank's own value: the engine adds the values in rank order, whatever the order of
// the steps, so ranks that reduce the same values get the same bits. flat_all_reduce
// relies on this.
#pragma once

#include <algorithm>
#include <set>
#include <span>
#include <vector>

#include "coll/schedule/algorithm.h"
#include "coll/schedule/schedule.h"

namespace weft {

// Channels of hierarchical algorithms: one for messages within a host, one for messages along a
// rail.
constexpr int kHostChannel = 0;
constexpr int kRailChannel = 1;
// Channels of unequal_ports.cc: the exchange among hosts without slow ports; messages that a rank
// of such a host forwards to or from a local rank on another rail; and messages sent directly to or
// from a host with slow ports.
constexpr int kDirectChannel = 2, kDetourChannel = 3, kSlowChannel = 4;

// direct.cc: every member exchanges data with every other member: n - 1 messages each, in one step.
void direct_reduce_scatter(Schedule& s, Group g, Chunks c, int channel);
void direct_all_gather(Schedule& s, Group g, Chunks c, int channel);
void flat_all_reduce(Schedule& s, Group g, Chunks c, int channel);  // every member sends all of c
void flat_reduce(Schedule& s, Group g, int root, Chunks c, int channel);
void flat_broadcast(Schedule& s, Group g, int root, Chunks c, int channel);

// ring.cc: n - 1 steps between neighbors, optimal in bytes.
void ring_reduce_scatter(Schedule& s, Group g, Chunks c, int channel);
void ring_all_gather(Schedule& s, Group g, Chunks c, int channel);
void chain_broadcast(Schedule& s, Group g, int root, Chunks c, int channel);

// recursive_doubling.cc: ceil(lg n) steps (two more for all_reduce if n is not a power of two).
void recursive_doubling_all_reduce(Schedule& s, Group g, Chunks c, int channel);
void bruck_all_gather(Schedule& s, Group g, Chunks c, int channel);
void dissemination_barrier(Schedule& s, Group g, Chunks c, int channel);

// halving_doubling.cc: optimal in bytes for every n. Radix 2: about lg n steps with one partner
// each; radix 4: half as many, with three partners.
template <int kRadix>
void halving_reduce_scatter(Schedule& s, Group g, Chunks c, int channel);
template <int kRadix>
void doubling_all_gather(Schedule& s, Group g, Chunks c, int channel);
// Returns an order of the n members for halving_reduce_scatter in which its first steps, which move
// the most bytes, are between neighbors. Empty if the steps are circulant.
std::vector<int> near_first(int n, int radix);

// rooted.cc: the message has circulant_classes(n) parts, and each part has its own tree of depth
// ceil(lg n) or ceil(lg n) + 1. A member sends each chunk at most once.
int circulant_classes(int n);
void circulant_broadcast(Schedule& s, Group g, int root, Chunks c, int channel);
void circulant_reduce(Schedule& s, Group g, int root, Chunks c, int channel);

// tree.cc: binomial tree, ceil(lg n) steps.
void binomial_broadcast(Schedule& s, Group g, int root, Chunks c, int channel);
void binomial_reduce(Schedule& s, Group g, int root, Chunks c, int channel);
// Reduces to member 0 and broadcasts from there: 2 (n - 1) messages, the fewest possible.
void tree_all_reduce(Schedule& s, Group g, Chunks c, int channel);

// reduce.cc: the mirror image of chain_broadcast.
void chain_reduce(Schedule& s, Group g, int root, Chunks c, int channel);
// reduce.cc: every member sends its part to the root.
void direct_gather(Schedule& s, Group g, int root, Chunks c, int channel);

// The groups that one rank belongs to. The shape must outlive the layout.
class Layout {
 public:
  explicit Layout(const Shape& shape);
  Layout(const Layout&) = delete;
  Layout& operator=(const Layout&) = delete;
  Group world() const { return {world_, rank_}; }               // all, in rank order
  Group by_host() const { return {by_host_, by_host_index_}; }  // all, host after host
  Group host() const { return {hosts()[host_], local_}; }       // the ranks of this host
  Group rail() const { return {rail_, host_}; }                 // same local index; uniform hosts
  int nhosts() const { return static_cast<int>(hosts().size()); }
  // Number of ranks on this host.
  int per_host() const { return static_cast<int>(hosts()[host_].size()); }
  int my_host() const { return host_; }
  int my_local() const { return local_; }
  const std::vector<std::vector<Rank>>& hosts() const { return *hosts_; }
  // The rank that represents each host: the rank with the root's local index, or the host's first
  // rank.
  std::vector<Rank> heads(Rank root) const;
  int host_of(Rank r) const { return host_of_[r]; }
  int local_of(Rank r) const { return local_of_[r]; }

 private:
  Rank rank_;
  std::vector<std::vector<Rank>> one_host_;      // all ranks, if the shape names no hosts
  const std::vector<std::vector<Rank>>* hosts_;  // the shape's hosts, or one_host_
  std::vector<Rank> world_, by_host_, rail_;
  std::vector<int> host_of_, local_of_;
  int host_ = 0, local_ = 0, by_host_index_ = 0;
};

bool any_shape(const Shape& shape);
bool uniform_hosts(const Shape& shape);  // every host has the same number of ranks
Schedule empty_schedule(const Shape& shape, int nchunks);
// The number of schedules that this thread has started to build, which measures the cost of a
// choice.
std::uint64_t schedules_built();

// Algorithms of one building block over all ranks, with one chunk per rank or one chunk in all.
enum class Cut : bool { kWhole, kPerRank };
template <Cut kCut, void (*kBlock)(Schedule&, Group, Chunks, int)>
Schedule one_block(const Shape& shape) {
  Schedule s = empty_schedule(shape, kCut == Cut::kWhole ? 1 : shape.nranks);
  kBlock(s, Layout(shape).world(), s.all(), 0);
  return s;
}
template <Cut kCut, void (*kBlock)(Schedule&, Group, int root, Chunks, int)>
Schedule one_block_of_root(const Shape& shape) {
  Schedule s = empty_schedule(shape, kCut == Cut::kWhole ? 1 : shape.nranks);
  kBlock(s, Layout(shape).world(), shape.root, s.all(), 0);
  return s;
}
// A chain through the ranks, host after host.
template <void (*kChain)(Schedule&, Group, int root, Chunks, int)>
Schedule chain_schedule(const Shape& shape) {
  Schedule s = empty_schedule(shape, 1);
  const Layout layout(shape);
  const Group g = layout.by_host();
  const auto root = std::find(g.ranks.begin(), g.ranks.end(), shape.root) - g.ranks.begin();
  kChain(s, g, static_cast<int>(root), s.all(), 0);
  return s;
}

// Returns parts [a, b) of n as one range; a < b.
Chunks parts(Chunks c, int a, int b, int n);
// Calls f with the range of parts [from, from + count) modulo n: two ranges where it wraps.
template <class F>
void for_cyclic(Chunks c, int from, int count, int n, F f) {
  from %= n;
  const int head = std::min(count, n - from);
  if (head > 0) f(parts(c, from, from + head, n));
  if (count > head) f(parts(c, 0, count - head, n));
}

// The rails on which every host has a rank, and the rank that represents each host on each of them.
class CommonRails {
 public:
  CommonRails(const Shape& shape, const Layout& layout);
  int count() const { return static_cast<int>(rails_.size()); }
  const std::vector<Rank>& rail(int i) const { return rails_[i]; }
  // The ranks of a host whose blocks use rail i: the rail's representative, and its share of the
  // ranks that represent no rail, which are assigned round-robin across all hosts.
  const std::vector<Rank>& served(int i, int host) const {
    return served_[static_cast<std::size_t>(host) * rails_.size() + static_cast<std::size_t>(i)];
  }
  // The ranks of this host: first the representatives of the rails, then the other ranks.
  std::vector<Rank> host() const;

 private:
  std::vector<std::vector<Rank>> rails_;   // [rail][host]
  std::vector<std::vector<Rank>> served_;  // [host * rails + rail]
  std::vector<Rank> here_, others_;
  std::set<Rank> taken_;
};

// Part l of the message uses rail l of `rails`, and is cut into `pieces` chunks.
Schedule parts_by_rail(const Shape& shape, int rails, int pieces);

// Variants of direct_reduce_scatter() and direct_all_gather() in which only the first `owners`
// members own parts.
void reduce_to_owners(Schedule& s, Group g, int owners);
void gather_from_owners(Schedule& s, Group g, int owners);

using RailBlock = void (*)(Schedule&, Group, Chunks, int);
enum class Along { kRing, kHalving, kHalving4 };
RailBlock reduce_scatter_along(Along way);
RailBlock all_gather_along(Along way);

// rail_order.cc: the order in which hosts exchange along their rails. It minimizes the bytes that
// cross the uplinks of leaves (Shape::leaf).
class RailOrder {
 public:
  RailOrder(const Shape& shape, Along way);
  const Shape& shape() const { return shape_; }  // with the hosts in this order
  // Add the steps of one rank. `rail` contains one rank per host, in this order; rail[place] is
  // this rank. After reduce_scatter() and before all_gather() this rank holds part `place` of c.
  void reduce_scatter(Schedule& s, const std::vector<Rank>& rail, int place, Chunks c) const;
  void all_gather(Schedule& s, const std::vector<Rank>& rail, int place, Chunks c) const;

 private:
  template <class F>
  void each_level(const std::vector<Rank>& rail, int place, Chunks c, bool outwards, F f) const;

  Shape shape_;
  Along way_;
  int leaves_ = 1;         // all with the same number of hosts, interleaved in the order
  std::vector<int> bine_;  // by place: the member of a Bine butterfly; empty: none
};

// unequal_ports.cc: all_reduce when some hosts have slow ports. Returns the hosts with slow ports
// (Shape::slow_ports), ascending. Empty if unequal_ports_all_reduce() does not support the shape:
// no host or every host has slow ports, all ports of a host are dead, hosts have different numbers
// of ranks, or the order of additions is fixed.
std::vector<int> slow_hosts(const Shape& shape);
Schedule unequal_ports_all_reduce(const Shape& shape, RailBlock reduce_scatter,
                                  RailBlock all_gather);

// The registry collects the algorithms of each file from these functions.
std::span<const Algorithm> direct_algorithms();
std::span<const Algorithm> ring_algorithms();
std::span<const Algorithm> recursive_doubling_algorithms();
std::span<const Algorithm> halving_doubling_algorithms();
std::span<const Algorithm> rail_algorithms();
std::span<const Algorithm> reduce_algorithms();
std::span<const Algorithm> gather_scatter_algorithms();
std::span<const Algorithm> rooted_algorithms();
std::span<const Algorithm> all_to_all_algorithms();
std::span<const Algorithm> tree_algorithms();

}  // namespace weft
