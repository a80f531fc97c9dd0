// The direct algorithms: every pair of ranks exchanges data. No algorithm is faster among ranks
// that share memory: a rank reads each byte once, in place, and reduces all sources in one pass.
#include "coll/schedule/building_blocks.h"

namespace weft {

// Members send in the order me + 1, me + 2, ..., so that no member receives from all others at
// once.
void direct_reduce_scatter(Schedule& s, Group g, Chunks c, int channel) {
  const int n = g.size();
  for (int i = 1; i < n; ++i) s.send(g.at(g.me + i), c.part(g.me + i, n), channel);
  for (int i = 1; i < n; ++i) s.recv_reduce(g.at(g.me - i), c.part(g.me, n), channel);
}

void direct_all_gather(Schedule& s, Group g, Chunks c, int channel) {
  const int n = g.size();
  for (int i = 1; i < n; ++i) s.send(g.at(g.me + i), c.part(g.me, n), channel);
  for (int i = 1; i < n; ++i) s.recv(g.at(g.me - i), c.part(g.me - i, n), channel);
}

// The sends precede the reduction since they send this rank's original value; the reduction waits
// for them.
void flat_all_reduce(Schedule& s, Group g, Chunks c, int channel) {
  for (int i = 1; i < g.size(); ++i) s.send(g.at(g.me + i), c, channel);
  for (int i = 1; i < g.size(); ++i) s.recv_reduce(g.at(g.me - i), c, channel);
}

void flat_reduce(Schedule& s, Group g, int root, Chunks c, int channel) {
  if (g.me != root) return s.send(g.at(root), c, channel);
  for (int i = 1; i < g.size(); ++i) s.recv_reduce(g.at(root + i), c, channel);
}

void flat_broadcast(Schedule& s, Group g, int root, Chunks c, int channel) {
  if (g.me != root) return s.recv(g.at(root), c, channel);
  for (int i = 1; i < g.size(); ++i) s.send(g.at(root + i), c, channel);
}

namespace {

Schedule direct_all_reduce_schedule(const Shape& shape) {
  Schedule s = empty_schedule(shape, shape.nranks);
  const Layout layout(shape);
  direct_reduce_scatter(s, layout.world(), s.all(), 0);
  direct_all_gather(s, layout.world(), s.all(), 0);
  return s;
}

}  // namespace

std::span<const Algorithm> direct_algorithms() {
  static constexpr Algorithm kAlgorithms[] = {
      {"direct", Collective::kAllReduce,
       "all pairs: every rank reduces its part in one pass over all sources and sends it to all",
       any_shape, direct_all_reduce_schedule},
      {"flat", Collective::kAllReduce,
       "every rank sends all of it to all others and reduces what it gets: one step", any_shape,
       one_block<Cut::kWhole, flat_all_reduce>},
      {"direct", Collective::kAllGather, "every rank sends its block to all others", any_shape,
       one_block<Cut::kPerRank, direct_all_gather>},
      {"direct", Collective::kReduceScatter,
       "every rank reduces its block in one pass over all sources", any_shape,
       one_block<Cut::kPerRank, direct_reduce_scatter>},
      {"direct", Collective::kBroadcast, "the root sends all of it to every rank", any_shape,
       one_block_of_root<Cut::kWhole, flat_broadcast>},
      // A barrier is an all_reduce of no data.
      {"direct", Collective::kBarrier, "every rank notifies all others", any_shape,
       one_block<Cut::kWhole, flat_all_reduce>},
  };
  return kAlgorithms;
}

}  // namespace weft
