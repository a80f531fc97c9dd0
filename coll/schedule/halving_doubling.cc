// Halving and doubling with one or more partners per step: few steps per pass, and the minimum
// number of bytes for every number of ranks. If n is a product of small factors, each step divides
// the range by a factor, and the ranks that differ in the corresponding digit exchange its parts
// (Rabenseifner, 2004, for powers of two); otherwise the steps are circulant (Traeff, 2023). No
// member folds its data into another member's, so no number of ranks costs extra bandwidth.
#include <algorithm>
#include <vector>

#include "coll/schedule/building_blocks.h"

namespace weft {
namespace {

// The factors of n, none larger than 3 (5 for radix 4); empty if there is no such factorization.
std::vector<int> factors(int n, int radix) {
  std::vector<int> all;
  for (int f = radix == 2 ? 3 : 5; f > 1; --f)
    for (; n % f == 0 && (f != 4 || radix == 4); n /= f) all.push_back(f);
  if (n != 1) all.clear();
  return all;
}

// A step among the members whose numbers differ in one digit.
struct Digit {
  int members;  // number of members in the exchange
  int stride;   // difference of their numbers
  // The aligned range of `stride` members that contains i.
  Chunks range(Chunks c, int i, int n) const {
    return parts(c, i / stride * stride, i / stride * stride + stride, n);
  }
  // The member whose digit is j higher than that of i, modulo `members`.
  int other(int i, int j) const {
    const int digit = i / stride % members;
    return i + ((digit + j + members) % members - digit) * stride;
  }
};

std::vector<Digit> digits(int n, int radix) {
  std::vector<Digit> all;
  for (const int f : factors(n, radix)) all.push_back({f, n /= f});
  return all;
}

// R[i] of member me is part (me - i) modulo n. In the step from a to b = ceil(a / radix), the
// member sends R[j b, (j + 1) b) to member me - j b for each j, and reduces the messages from
// members me + j b. Calls f(j b, length of the range), from a = n down. A range that wraps around
// needs two messages. Ranges go down from a member's own part, so that member 0 has the most such
// ranges: the engine cuts messages by the schedule of member 0 (coll/engine/outline.h).
template <class F>
void each_skip(int a, int radix, F f) {
  if (a == 1) return;
  const int b = (a + radix - 1) / radix;
  for (int skip = b; skip < a; skip += b) f(skip, std::min(b, a - skip));
  each_skip(b, radix, f);
}

template <class F>
void each_skip_upwards(int a, int radix, F f) {
  if (a == 1) return;
  const int b = (a + radix - 1) / radix;
  each_skip_upwards(b, radix, f);
  for (int skip = b; skip < a; skip += b) f(skip, std::min(b, a - skip));
}

}  // namespace

template <int kRadix>
void halving_reduce_scatter(Schedule& s, Group g, Chunks c, int channel) {
  const int n = g.size();
  for (const Digit& d : digits(n, kRadix)) {
    for (int j = 1; j < d.members; ++j)
      s.send(g.at(d.other(g.me, j)), d.range(c, d.other(g.me, j), n), channel);
    for (int j = 1; j < d.members; ++j)
      s.recv_reduce(g.at(d.other(g.me, -j)), d.range(c, g.me, n), channel);
  }
  if (!factors(n, kRadix).empty()) return;
  each_skip(n, kRadix, [&](int skip, int count) {
    for_cyclic(c, n + g.me - skip - count + 1, count, n,
               [&](Chunks at) { s.send(g.at(g.me - skip), at, channel); });
    for_cyclic(c, n + g.me - count + 1, count, n,
               [&](Chunks at) { s.recv_reduce(g.at(g.me + skip), at, channel); });
  });
}

template <int kRadix>
void doubling_all_gather(Schedule& s, Group g, Chunks c, int channel) {
  const int n = g.size();
  const std::vector<Digit> all = digits(n, kRadix);
  for (auto d = all.rbegin(); d != all.rend(); ++d) {
    for (int j = 1; j < d->members; ++j)
      s.send(g.at(d->other(g.me, j)), d->range(c, g.me, n), channel);
    for (int j = 1; j < d->members; ++j)
      s.recv(g.at(d->other(g.me, -j)), d->range(c, d->other(g.me, -j), n), channel);
  }
  if (!all.empty()) return;
  each_skip_upwards(n, kRadix, [&](int skip, int count) {
    for_cyclic(c, n + g.me - count + 1, count, n,
               [&](Chunks at) { s.send(g.at(g.me + skip), at, channel); });
    for_cyclic(c, n + g.me - skip - count + 1, count, n,
               [&](Chunks at) { s.recv(g.at(g.me - skip), at, channel); });
  });
}

std::vector<int> near_first(int n, int radix) {
  const std::vector<Digit> all = digits(n, radix);
  std::vector<int> members;
  for (int place = 0; place < n && !all.empty(); ++place) {
    int member = 0, away = 1;
    for (const Digit& d : all) {
      member += place / d.stride % d.members * away;
      away *= d.members;
    }
    members.push_back(member);
  }
  return members;
}

template void halving_reduce_scatter<2>(Schedule&, Group, Chunks, int);
template void halving_reduce_scatter<4>(Schedule&, Group, Chunks, int);
template void doubling_all_gather<2>(Schedule&, Group, Chunks, int);
template void doubling_all_gather<4>(Schedule&, Group, Chunks, int);

namespace {

void reduce_scatter(Schedule& s, const Shape& shape, Group g) {
  shape.deterministic ? direct_reduce_scatter(s, g, s.all(), 0)
                      : halving_reduce_scatter<2>(s, g, s.all(), 0);
}

Schedule all_reduce_schedule(const Shape& shape) {
  Schedule s = empty_schedule(shape, shape.nranks);
  const Layout layout(shape);
  reduce_scatter(s, shape, layout.world());
  doubling_all_gather<2>(s, layout.world(), s.all(), 0);
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
       one_block<Cut::kPerRank, doubling_all_gather<2>>},
      {"halving_doubling", Collective::kReduceScatter,
       "ceil(lg n) steps and fewest bytes: half of it, a quarter, ...", any_shape,
       reduce_scatter_schedule},
  };
  return kAlgorithms;
}

}  // namespace weft
