// Determines the order in which hosts exchange along their rails, so that few bytes cross the
// uplinks that neighbors share.
//
// If leaves are known and have equal sizes, a reduce_scatter runs within each leaf, then among the
// hosts that hold the same part of the message: no schedule moves fewer bytes between leaves.
// Otherwise the first steps, which move the most bytes, are between neighbors. For a power of two
// the partners are those of Bine butterflies (De Sensi et al., SC 2025): step k has a distance of
// about 2^k * 2/3 hosts, in alternating directions, which crosses fewer leaf boundaries than 2^k
// does.
#include <algorithm>
#include <bit>
#include <numeric>

#include "coll/schedule/building_blocks.h"

namespace weft {
namespace {

constexpr int kNeighbors = 8;  // maximum size of a group of hosts that is treated as a leaf

int bine_partner(int n, int i, int k) {
  int away = 0;
  for (int power = 1; k >= 0; --k, power *= -2) away += power;  // 1, -1, 3, -5, 11, ...
  return ((i % 2 == 0 ? i + away : i - away) % n + n) % n;
}

// Assigns the places from `at` on to the members that `i` reaches in the steps from k on.
void bine_places(int i, int k, int at, std::vector<int>& by_place) {
  const int n = static_cast<int>(by_place.size()), rest = n >> (k + 1);
  if (rest == 0) {
    by_place[static_cast<std::size_t>(at)] = i;
    return;
  }
  bine_places(i, k + 1, at, by_place);
  bine_places(bine_partner(n, i, k), k + 1, at + rest, by_place);
}

// Calls f(partner, size) for each step of member `place`: the two members exchange their aligned
// ranges of `size` places.
template <class F>
void each_bine_step(const std::vector<int>& by_place, int place, F f) {
  if (by_place.empty()) return;
  const int n = static_cast<int>(by_place.size()), i = by_place[static_cast<std::size_t>(place)];
  std::vector<int> place_of(by_place.size());
  for (int p = 0; p < n; ++p) place_of[static_cast<std::size_t>(by_place[p])] = p;
  for (int k = 0; n >> (k + 1) > 0; ++k)
    f(place_of[static_cast<std::size_t>(bine_partner(n, i, k))], n >> (k + 1));
}

Chunks aligned(Chunks c, int place, int size, int n) {
  return parts(c, place / size * size, place / size * size + size, n);
}

}  // namespace

RailOrder::RailOrder(const Shape& any, Along way) : shape_(any), way_(way) {
  const std::size_t n = any.hosts.size();
  if (n < 3) return;
  std::vector<int> hosts(n);
  std::iota(hosts.begin(), hosts.end(), 0);
  std::vector<int> sizes;
  if (any.leaf.size() == n) {
    const auto leaf = [&](int h) { return any.leaf[static_cast<std::size_t>(h)]; };
    std::ranges::stable_sort(hosts, {}, leaf);
    for (std::size_t i = 0; i < n; ++i) {
      if (i == 0 || leaf(hosts[i]) != leaf(hosts[i - 1])) sizes.push_back(0);
      ++sizes.back();
    }
  }
  const bool even = sizes.size() > 1 && sizes.size() < n &&
                    std::ranges::count(sizes, sizes[0]) == std::ssize(sizes);
  const int size = static_cast<int>(n);
  // Circulant steps cannot be ordered by distance, so nearby hosts are grouped as a leaf is.
  const std::vector<int> near = near_first(size, way == Along::kHalving ? 2 : 4);
  const bool circulant = near_first(size, 4).empty();
  int together = even ? sizes[0] : 1;
  for (int i = 2; !even && i <= kNeighbors && i < size && circulant; ++i)
    if (size % i == 0) together = i;
  std::vector<int> order(n);
  std::iota(order.begin(), order.end(), 0);
  if (way != Along::kRing && together > 1) {
    leaves_ = size / together;
    for (int i = 0; i < size; ++i)
      order[static_cast<std::size_t>(i)] = i % leaves_ * together + i / leaves_;
  } else if (way == Along::kHalving && std::has_single_bit(n)) {
    bine_places(0, 0, 0, order);
    bine_ = order;
  } else if (way != Along::kRing && !near.empty()) {
    order = near;
  }
  for (std::size_t i = 0; i < n; ++i)
    shape_.hosts[i] =
        any.hosts[static_cast<std::size_t>(hosts[static_cast<std::size_t>(order[i])])];
}

template <class F>
void RailOrder::each_level(const std::vector<Rank>& rail, int place, Chunks c, bool outwards,
                           F f) const {
  const int near = static_cast<int>(rail.size()) / leaves_;
  const int in_leaf = place / leaves_, leaf = place % leaves_;
  std::vector<Rank> neighbors, others;
  for (int i = 0; i < near; ++i) neighbors.push_back(rail[i * leaves_ + leaf]);
  for (int i = 0; i < leaves_; ++i) others.push_back(rail[in_leaf * leaves_ + i]);
  if (outwards) f(Group{neighbors, in_leaf}, c);
  f(Group{others, leaf}, c.part(in_leaf, near));
  if (!outwards) f(Group{neighbors, in_leaf}, c);
}

void RailOrder::reduce_scatter(Schedule& s, const std::vector<Rank>& rail, int place,
                               Chunks c) const {
  const int n = static_cast<int>(rail.size());
  each_bine_step(bine_, place, [&](int partner, int size) {
    s.send(rail[partner], aligned(c, partner, size, n), kRailChannel);
    s.recv_reduce(rail[partner], aligned(c, place, size, n), kRailChannel);
  });
  if (bine_.empty())
    each_level(rail, place, c, true,
               [&](Group g, Chunks at) { reduce_scatter_along(way_)(s, g, at, kRailChannel); });
}

void RailOrder::all_gather(Schedule& s, const std::vector<Rank>& rail, int place, Chunks c) const {
  const int n = static_cast<int>(rail.size());
  std::vector<std::pair<int, int>> steps;
  each_bine_step(bine_, place, [&](int partner, int size) { steps.emplace_back(partner, size); });
  for (; !steps.empty(); steps.pop_back()) {
    const auto [partner, size] = steps.back();
    s.send(rail[partner], aligned(c, place, size, n), kRailChannel);
    s.recv(rail[partner], aligned(c, partner, size, n), kRailChannel);
  }
  if (bine_.empty())
    each_level(rail, place, c, false,
               [&](Group g, Chunks at) { all_gather_along(way_)(s, g, at, kRailChannel); });
}

RailBlock reduce_scatter_along(Along way) {
  return way == Along::kRing      ? ring_reduce_scatter
         : way == Along::kHalving ? halving_reduce_scatter<2>
                                  : halving_reduce_scatter<4>;
}
RailBlock all_gather_along(Along way) {
  return way == Along::kRing      ? ring_all_gather
         : way == Along::kHalving ? doubling_all_gather<2>
                                  : doubling_all_gather<4>;
}

}  // namespace weft
