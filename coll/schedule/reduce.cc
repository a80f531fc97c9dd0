// reduce: an all_reduce whose result is kept only by the root.
//
// If the result must not depend on the algorithm (Shape::deterministic), contributions travel
// unreduced to the rank that reduces them: the root, or the owner of a part.
#include <algorithm>

#include "coll/schedule/building_blocks.h"

namespace weft {

// The sum starts at the member after the root and travels around the ring to the root; rounds
// pipeline it.
void chain_reduce(Schedule& s, Group g, int root, Chunks c, int channel) {
  if (g.at(g.me + 1) != g.at(root)) s.recv_reduce(g.at(g.me + 1), c, channel);
  if (g.me != root) s.send(g.at(g.me - 1), c, channel);
}

// The root receives part i from member i.
void direct_gather(Schedule& s, Group g, int root, Chunks c, int channel) {
  const int n = g.size();
  if (g.me != root) return s.send(g.at(root), c.part(g.me, n), channel);
  for (int i = 1; i < n; ++i) s.recv(g.at(root + i), c.part(root + i, n), channel);
}

namespace {

constexpr auto flat_schedule = one_block_of_root<Cut::kWhole, flat_reduce>;

// Every rank reduces its part, and the root gathers the parts.
Schedule in_parts(const Shape& shape, decltype(direct_reduce_scatter)& reduce_scatter) {
  Schedule s = empty_schedule(shape, shape.nranks);
  const Layout layout(shape);
  reduce_scatter(s, layout.world(), s.all(), 0);
  direct_gather(s, layout.world(), shape.root, s.all(), 0);
  return s;
}

Schedule direct_schedule(const Shape& shape) { return in_parts(shape, direct_reduce_scatter); }

Schedule halving_schedule(const Shape& shape) {
  if (shape.deterministic) return direct_schedule(shape);
  return in_parts(shape, halving_reduce_scatter<2>);
}

Schedule ring_schedule(const Shape& shape) {
  return shape.deterministic ? flat_schedule(shape) : chain_schedule<chain_reduce>(shape);
}

Schedule tree_schedule(const Shape& shape) {
  if (shape.deterministic) return flat_schedule(shape);
  Schedule s = empty_schedule(shape, 1);
  const Layout layout(shape);
  const std::vector<Rank> heads = layout.heads(shape.root);
  const Rank head = heads[layout.my_host()];
  binomial_reduce(s, layout.host(), layout.local_of(head), s.all(), kHostChannel);
  if (head == shape.rank)
    binomial_reduce(s, {heads, layout.my_host()}, layout.host_of(shape.root), s.all(),
                    kRailChannel);
  return s;
}

}  // namespace

std::span<const Algorithm> reduce_algorithms() {
  static constexpr Algorithm kAlgorithms[] = {
      {"direct", Collective::kReduce,
       "all pairs: every rank reduces its part in one pass over all sources, the root collects "
       "them",
       any_shape, direct_schedule},
      {"flat", Collective::kReduce, "every rank sends all of it to the root: one step", any_shape,
       flat_schedule},
      {"ring", Collective::kReduce, "a pipeline through all ranks to the root", any_shape,
       ring_schedule},
      {"halving_doubling", Collective::kReduce,
       "half of it, a quarter, ... in ceil(lg n) steps; then the root collects the parts",
       any_shape, halving_schedule},
      {"tree", Collective::kReduce, "a binomial tree inside each host, and one between them",
       any_shape, tree_schedule},
  };
  return kAlgorithms;
}

}  // namespace weft
