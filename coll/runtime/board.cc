// Small collectives among ranks that share memory: each rank publishes its data, all ranks read.
//
// This runs the schedule "flat" (and the small cases of "direct") on the transport's board: one
// store and n - 1 loads take the place of messages.
#include <cstring>
#include <vector>

#include "coll/runtime/core.h"
#include "coll/schedule/footprint.h"

namespace weft {
namespace {

// The message is not call.in.
bool publishes_product(Collective c, const Call& call) {
  return call.op == RedOp::kPreMulSum && reduces(c);
}

}  // namespace

void publish_on_board(GroupState& g, Collective c, const Call& call, Rank root) {
  const std::size_t bytes =
      call.count * size_of(call.type) * blocks_in(footprint(c, g.me, root).in, g.ranks.size());
  if (!publishes_product(c, call))
    return g.board->publish(++g.board_round, call.in, bytes, call.head);
  std::vector<std::byte> product(bytes);
  multiply(product.data(), call.in, call.type, call.factor, bytes / size_of(call.type));
  g.board->publish(++g.board_round, product.data(), bytes, call.head);
}

bool board_ready(const GroupState& g) {
  const int n = static_cast<int>(g.ranks.size());
  for (int i = 1; i < n; ++i) {  // the next neighbour first: not all ranks on one line
    const int member = g.me + i < n ? g.me + i : g.me + i - n;
    if (!g.board->read(member, g.board_round)) return false;
  }
  return true;
}

BoardOutcome board_finish(GroupState& g, Collective c, const Call& call, Rank root) {
  const int n = static_cast<int>(g.ranks.size());
  const std::size_t bytes = call.count * size_of(call.type);
  const void* from[kMostOnBoard];
  const int other = g.board->collect(g.board_round, call.head.sign, from);
  if (other >= 0) [[unlikely]]
    return {other};
  if (!publishes_product(c, call)) [[likely]]
    from[g.me] = call.in;
  const auto copy = [&](int to, const void* what, int part) {
    if (bytes)
      std::memcpy(static_cast<std::byte*>(call.out) + static_cast<std::size_t>(to) * bytes,
                  static_cast<const std::byte*>(what) + static_cast<std::size_t>(part) * bytes,
                  bytes);
  };
  // Of what a rank published: all of it, or the block of this one.
  const int part = footprint(c).in == Part::kAll ? g.me : 0;
  const Part out = footprint(c, g.me, root).out;
  if (out != Part::kNothing && reduces(c)) {
    for (int i = 0; i < n && part; ++i)
      from[i] = static_cast<const std::byte*>(from[i]) + static_cast<std::size_t>(part) * bytes;
    reduce_kernel(call.type, call.op)(call.out, from, n, call.count);
    if (call.op == RedOp::kAvg) scale(call.out, call.out, call.type, n, call.count);
  } else if (out == Part::kAll) {
    for (int i = 0; i < n; ++i) copy(i, from[i], part);
  } else if (out == Part::kOne) {
    copy(0, from[root], part);
  }
  if (g.board_traffic && !rooted(c)) [[likely]] {
    g.board_traffic->messages.add();
    g.board_traffic->bytes.add(bytes);
  } else {
    g.core->telemetry->moved_on_board(g, c, bytes, root);
  }
  return {};
}

Rank board_missing(const GroupState& g) {
  for (std::size_t i = 0; i < g.ranks.size(); ++i)
    if (!g.board->read(static_cast<int>(i), g.board_round)) return g.ranks[i];
  return kNoRank;
}

}  // namespace weft
