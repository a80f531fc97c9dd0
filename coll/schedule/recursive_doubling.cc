// Algorithms for small messages: recursive doubling with a fold for ranks beyond a power of two
// (Thakur et al., 2005), Bruck's all-gather (1997), the dissemination barrier (Hensgen et al.,
// 1988).
#include <algorithm>
#include <bit>

#include "coll/schedule/building_blocks.h"

namespace weft {

// The first 2 * extra members fold in pairs: the even member sends its value to the odd one, skips
// the doubling, and receives the result. The other members double: after every step both partners
// hold the same value.
void recursive_doubling_all_reduce(Schedule& s, Group g, Chunks c, int channel) {
  const int n = g.size();
  const int power = static_cast<int>(std::bit_floor(static_cast<unsigned>(n)));
  const int extra = n - power;
  const bool folded = g.me < 2 * extra;
  if (folded && g.me % 2 == 0) {
    s.send(g.at(g.me + 1), c, channel);
    s.recv(g.at(g.me + 1), c, channel);
    return;
  }
  if (folded) s.recv_reduce(g.at(g.me - 1), c, channel);
  const int id = folded ? g.me / 2 : g.me - extra;
  for (int mask = 1; mask < power; mask *= 2) {
    const int other = id ^ mask;
    const Rank peer = g.at(other < extra ? 2 * other + 1 : other + extra);
    s.send(peer, c, channel);  // before the reduction changes the value
    s.recv_reduce(peer, c, channel);
  }
  if (folded) s.send(g.at(g.me - 1), c, channel);
}

// Member me holds parts [me, me + have) modulo n.
void bruck_all_gather(Schedule& s, Group g, Chunks c, int channel) {
  const int n = g.size();
  for (int have = 1; have < n; have *= 2) {
    const int count = std::min(have, n - have);
    for_cyclic(c, g.me, count, n, [&](Chunks at) { s.send(g.at(g.me - have), at, channel); });
    for_cyclic(c, g.me + have, count, n,
               [&](Chunks at) { s.recv(g.at(g.me + have), at, channel); });
  }
}

// After the step of distance d every member knows that the 2d members before and including itself
// have entered the barrier.
void dissemination_barrier(Schedule& s, Group g, Chunks c, int channel) {
  for (int distance = 1; distance < g.size(); distance *= 2) {
    s.send(g.at(g.me + distance), c, channel);
    s.recv_reduce(g.at(g.me - distance), c, channel);
  }
}

namespace {

Schedule recursive_doubling_all_reduce_schedule(const Shape& shape) {
  Schedule s = empty_schedule(shape, 1);
  // The order of additions in recursive doubling depends on the number of ranks.
  (shape.deterministic ? flat_all_reduce : recursive_doubling_all_reduce)(s, Layout(shape).world(),
                                                                          s.all(), 0);
  return s;
}

}  // namespace

std::span<const Algorithm> recursive_doubling_algorithms() {
  static constexpr Algorithm kAlgorithms[] = {
      {"recursive_doubling", Collective::kAllReduce,
       "partners at distance 1, 2, 4, ... exchange all of it: fewest steps", any_shape,
       recursive_doubling_all_reduce_schedule},
      {"recursive_doubling", Collective::kAllGather,
       "what a rank holds doubles in each of ceil(lg n) steps (Bruck)", any_shape,
       one_block<Cut::kPerRank, bruck_all_gather>},
      {"dissemination", Collective::kBarrier, "ceil(lg n) steps at distance 1, 2, 4, ...",
       any_shape, one_block<Cut::kWhole, dissemination_barrier>},
  };
  return kAlgorithms;
}

}  // namespace weft
