// Halving and doubling: ceil(lg n) steps per pass, optimal in bytes for every number of ranks. They
// pair ranks by XOR at powers of two (Rabenseifner, 2004) and take the circulant form elsewhere
// (Traeff, 2023). No member folds its data into another's, so no rank count pays in bandwidth.
#include <algorithm>
#include <bit>

#include "coll/schedule/building_blocks.h"

namespace weft {
namespace {

bool power_of_two(int n) { return std::has_single_bit(static_cast<unsigned>(n)); }

// Half of 2 * mask members, aligned: the parts of those that share all bits of i from mask up.
Chunks half(Chunks c, int i, int mask, int n) {
  const int first = i & ~(mask - 1);
  return parts(c, first, first + mask, n);
}

// R[i] of member me is part (me + i) modulo n. In the step a -> b = ceil(a/2) it passes R[b, a) on
// to member me + b, and adds what comes from me - b into R[0, a - b). f(b, a), from a = n down.
template <class F>
void each_skip(int a, F f) {
  if (a == 1) return;
  const int b = (a + 1) / 2;
  f(b, a);
  each_skip(b, f);
}

template <class F>
void each_skip_upwards(int a, F f) {
  if (a == 1) return;
  const int b = (a + 1) / 2;
  each_skip_upwards(b, f);
  f(b, a);
}

}  // namespace

void halving_reduce_scatter(Schedule& s, Group g, Chunks c, int channel) {
  const int n = g.size();
  if (power_of_two(n)) {
    for (int mask = n / 2; mask > 0; mask /= 2) {
      const int other = g.me ^ mask;
      s.send(g.at(other), half(c, other, mask, n), channel);
      s.recv_reduce(g.at(other), half(c, g.me, mask, n), channel);
    }
    return;
  }
  each_skip(n, [&](int b, int a) {
    for_cyclic(c, g.me + b, a - b, n, [&](Chunks at) { s.send(g.at(g.me + b), at, channel); });
    for_cyclic(c, g.me, a - b, n, [&](Chunks at) { s.recv_reduce(g.at(g.me - b), at, channel); });
  });
}

void doubling_all_gather(Schedule& s, Group g, Chunks c, int channel) {
  const int n = g.size();
  if (power_of_two(n)) {
    for (int mask = 1; mask < n; mask *= 2) {
      const int other = g.me ^ mask;
      s.send(g.at(other), half(c, g.me, mask, n), channel);
      s.recv(g.at(other), half(c, other, mask, n), channel);
    }
    return;
  }
  each_skip_upwards(n, [&](int b, int a) {
    for_cyclic(c, g.me, a - b, n, [&](Chunks at) { s.send(g.at(g.me - b), at, channel); });
    for_cyclic(c, g.me + b, a - b, n, [&](Chunks at) { s.recv(g.at(g.me + b), at, channel); });
  });
}

namespace {

void reduce_scatter(Schedule& s, const Shape& shape, Group g) {
  (shape.deterministic ? direct_reduce_scatter : halving_reduce_scatter)(s, g, s.all(), 0);
}

Schedule all_reduce_schedule(const Shape& shape) {
  Schedule s = empty_schedule(shape, shape.nranks);
  const Layout layout(shape);
  reduce_scatter(s, shape, layout.world());
  doubling_all_gather(s, layout.world(), s.all(), 0);
  return s;
}

Schedule reduce_scatter_schedule(const Shape& shape) {
  Schedule s = empty_schedule(shape, shape.nranks);
  reduce_scatter(s, shape, Layout(shape).world());
  return s;
}

}  // namespace

std::span<const Algorithm> halving_doubling_algorithms() {
  static constexpr Algorithm kAlgorithms[] = {
      {"halving_doubling", Collective::kAllReduce,
       "2 ceil(lg n) steps and fewest bytes: half of it, a quarter, ..., and back", any_shape,
       all_reduce_schedule},
      {"halving_doubling", Collective::kAllGather,
       "ceil(lg n) steps and fewest bytes: one block, two, four, ...", any_shape,
       one_block<Cut::kPerRank, doubling_all_gather>},
      {"halving_doubling", Collective::kReduceScatter,
       "ceil(lg n) steps and fewest bytes: half of it, a quarter, ...", any_shape,
       reduce_scatter_schedule},
  };
  return kAlgorithms;
}

}  // namespace weft
