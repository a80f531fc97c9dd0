// The ring: every rank exchanges only with its neighbors. It is optimal in bytes, takes n - 1 steps
// per pass (Patarasuk and Yuan, 2009), and visits host after host, entering each host once.
#include <algorithm>

#include "coll/schedule/building_blocks.h"

namespace weft {

void ring_reduce_scatter(Schedule& s, Group g, Chunks c, int channel) {
  const int n = g.size();
  for (int i = 1; i < n; ++i) {
    s.send(g.at(g.me + 1), c.part(g.me - i, n), channel);
    s.recv_reduce(g.at(g.me - 1), c.part(g.me - i - 1, n), channel);
  }
}

void ring_all_gather(Schedule& s, Group g, Chunks c, int channel) {
  const int n = g.size();
  for (int i = 0; i < n - 1; ++i) {
    s.send(g.at(g.me + 1), c.part(g.me - i, n), channel);
    s.recv(g.at(g.me - 1), c.part(g.me - i - 1, n), channel);
  }
}

// Every member forwards the chunks that it receives; rounds pipeline them.
void chain_broadcast(Schedule& s, Group g, int root, Chunks c, int channel) {
  if (g.me != root) s.recv(g.at(g.me - 1), c, channel);
  if (g.at(g.me + 1) != g.at(root)) s.send(g.at(g.me + 1), c, channel);
}

namespace {

// Chunk i is the block of the i-th rank in ring order.
Schedule blocks_around(const Shape& shape, const Layout& layout) {
  Schedule s = empty_schedule(shape, shape.nranks);
  const auto order = layout.by_host().ranks;
  if (!std::is_sorted(order.begin(), order.end())) s.block.assign(order.begin(), order.end());
  return s;
}

// Partial sums travel around the ring; in deterministic mode, contributions travel unreduced to the
// block's owner.
void around_reduce_scatter(Schedule& s, const Shape& shape, Group g) {
  (shape.deterministic ? direct_reduce_scatter : ring_reduce_scatter)(s, g, s.all(), 0);
}

Schedule ring_all_reduce_schedule(const Shape& shape) {
  Schedule s = empty_schedule(shape, shape.nranks);
  const Layout layout(shape);
  around_reduce_scatter(s, shape, layout.by_host());
  ring_all_gather(s, layout.by_host(), s.all(), 0);
  return s;
}

Schedule ring_all_gather_schedule(const Shape& shape) {
  const Layout layout(shape);
  Schedule s = blocks_around(shape, layout);
  ring_all_gather(s, layout.by_host(), s.all(), 0);
  return s;
}

Schedule ring_reduce_scatter_schedule(const Shape& shape) {
  const Layout layout(shape);
  Schedule s = blocks_around(shape, layout);
  around_reduce_scatter(s, shape, layout.by_host());
  return s;
}

}  // namespace

std::span<const Algorithm> ring_algorithms() {
  static constexpr Algorithm kAlgorithms[] = {
      {"ring", Collective::kAllReduce, "reduce-scatter, then all-gather, between neighbours",
       any_shape, ring_all_reduce_schedule},
      {"ring", Collective::kAllGather, "blocks travel around, from neighbour to neighbour",
       any_shape, ring_all_gather_schedule},
      {"ring", Collective::kReduceScatter,
       "partial sums travel around, from neighbour to neighbour", any_shape,
       ring_reduce_scatter_schedule},
      {"ring", Collective::kBroadcast, "a pipeline from the root through all ranks", any_shape,
       chain_schedule<chain_broadcast>},
  };
  return kAlgorithms;
}

}  // namespace weft
