// Publishes, reads and reduces messages on a board, in the order of a group's calls.
//
// This runs the schedule "flat" (and the small cases of "direct") on the transport's board: one
// store and n - 1 loads take the place of messages.
#include "coll/tasks/board_task.h"

#include <cstring>
#include <numeric>
#include <utility>
#include <vector>

#include "coll/footprint.h"
#include "coll/tasks/agreement.h"

namespace weft {
namespace {

// Whether the published message differs from call.in.
bool publishes_product(Collective c, const Call& call) {
  return call.op == RedOp::kPreMulSum && reduces(c);
}

// The contiguous blocks of a vector call's `in`: in place, or copied into `packed`.
const void* in_one_piece(const Call& call, std::vector<std::byte>& packed, std::size_t& bytes) {
  const std::size_t element = size_of(call.type);
  const auto* const in = static_cast<const std::byte*>(call.in);
  bool apart = false;
  for (std::size_t i = 0; i < call.counts.size(); ++i) {
    apart = apart || (call.counts[i] && call.offsets[i] * element != bytes);
    bytes += call.counts[i] * element;
  }
  if (!apart) return in;
  packed.resize(bytes);
  std::byte* to = packed.data();
  for (std::size_t i = 0; i < call.counts.size(); ++i) {
    if (const std::size_t block = call.counts[i] * element) {
      std::memcpy(to, in + call.offsets[i] * element, block);
      to += block;
    }
  }
  return packed.data();
}

// Completes a vector call. `from`: the messages of all members, with contiguous blocks.
void finish_uneven(const GroupState& g, Collective c, const Call& call, Rank root,
                   const void** from) {
  const std::size_t element = size_of(call.type), n = g.ranks.size();
  const Part out = footprint(c, g.me, root).out;
  const auto copy = [&](std::size_t to, const void* what, std::size_t count) {
    if (count) std::memcpy(static_cast<std::byte*>(call.out) + to * element, what, count * element);
  };
  if (out == Part::kAll)
    for (std::size_t i = 0; i < n; ++i) copy(call.offsets[i], from[i], call.counts[i]);
  if (out != Part::kOne) return;
  const auto me = static_cast<std::ptrdiff_t>(g.me);
  const auto counts = call.counts.begin();
  const std::size_t before = std::accumulate(counts, counts + me, std::size_t{0}),
                    count = counts[me];
  for (std::size_t i = 0; i < n; ++i)
    from[i] = static_cast<const std::byte*>(from[i]) + before * element;
  if (!reduces(c)) return copy(0, from[root], count);
  reduce_kernel(call.type, call.op)(call.out, from, static_cast<int>(n), count);
  if (call.op == RedOp::kAvg) scale(call.out, call.out, call.type, static_cast<int>(n), count);
}

}  // namespace

void publish_on_board(GroupState& g, Collective c, const Call& call, Rank root) {
  const std::size_t element = size_of(call.type);
  const Part in = footprint(c, g.me, root).in;
  const void* data = call.in;
  std::size_t bytes = call.count * element * blocks_in(in, g.ranks.size());
  std::vector<std::byte> made;
  if (call.is_vector) [[unlikely]] {
    bytes = in == Part::kOne ? call.counts[static_cast<std::size_t>(g.me)] * element : 0;
    if (in == Part::kAll) data = in_one_piece(call, made, bytes);
  }
  if (publishes_product(c, call)) {
    if (made.empty()) made.resize(bytes);
    multiply(made.data(), data, call.type, call.factor, bytes / element);
    data = made.data();
  }
  g.board->publish(++g.board_round, data, bytes, call.head);
}

bool board_ready(const GroupState& g) {
  const int n = static_cast<int>(g.ranks.size());
  for (int i = 1; i < n; ++i) {  // next neighbor first: ranks read different lines
    const int member = g.me + i < n ? g.me + i : g.me + i - n;
    if (!g.board->read(member, g.board_round)) return false;
  }
  return true;
}

BoardOutcome board_finish(GroupState& g, Collective c, const Call& call, Rank root) {
  const int n = static_cast<int>(g.ranks.size());
  const std::size_t count =
      call.is_vector ? call.counts[static_cast<std::size_t>(g.me)] : call.count;
  const std::size_t bytes = count * size_of(call.type);
  const void* from[kMostOnBoard];
  const int other = g.board->collect(g.board_round, call.head.sign, from);
  if (other >= 0) [[unlikely]]
    return {other};
  if (!publishes_product(c, call) && !call.is_vector) [[likely]]
    from[g.me] = call.in;
  const auto copy = [&](int to, const void* what, int part) {
    if (bytes)
      std::memcpy(static_cast<std::byte*>(call.out) + static_cast<std::size_t>(to) * bytes,
                  static_cast<const std::byte*>(what) + static_cast<std::size_t>(part) * bytes,
                  bytes);
  };
  // The block of each published message that this rank uses.
  const int part = footprint(c).in == Part::kAll ? g.me : 0;
  const Part out = footprint(c, g.me, root).out;
  if (call.is_vector) [[unlikely]] {
    finish_uneven(g, c, call, root, from);
  } else if (out != Part::kNothing && reduces(c)) {
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

// ---- the task ------------------------------------------------------------------------------

BoardTask* BoardTask::begin(GroupState& g, const PreparedRef& prepared, std::uint64_t number,
                            std::uint64_t record, const Call& call,
                            std::vector<std::size_t>&& blocks) {
  auto* const task = new BoardTask(std::move(blocks), record != 0);
  task->group = &g;
  task->prepared = prepared;
  task->number = number;
  task->record = record;
  task->call = call;
  if (!g.core->tasks.submit(task, false)) return task;
  g.board_queue.push_back(task);
  if (task->first()) task->publish();
  return task;
}

void BoardTask::publish() {
  Core& core = *group->core;
  if (!std::exchange(published_, true))
    publish_on_board(*group, prepared->what.collective, call, prepared->of.root);
  core.tasks.ask(this);
}

Task::Step BoardTask::progress() {
  if (diverging_ >= 0) return Step::kFailed;
  if (!board_ready(*group)) return Step::kGoOn;
  diverging_ = board_finish(*group, prepared->what.collective, call, prepared->of.root).diverging;
  return diverging_ < 0 ? Step::kDone : Step::kFailed;
}

void BoardTask::done() {
  group->board_queue.pop_front();
  for (BoardTask* next : group->board_queue) next->moved = true;
  if (!group->board_queue.empty()) group->board_queue.front()->publish();
}

Rank BoardTask::waiting_for() const {
  for (std::size_t i = 0; i < group->ranks.size(); ++i)
    if (!group->board->read(static_cast<int>(i), group->board_round)) return group->ranks[i];
  return kNoRank;
}

bool BoardTask::survey(Recorder::Stalled& how_far) const {
  if (!first()) return false;
  how_far.rounds = 1;
  for (const bool missing : {true, false})
    for (std::size_t i = 0; i < group->ranks.size(); ++i) {
      const bool here = group->board->read(static_cast<int>(i), group->board_round) != nullptr;
      if (static_cast<Rank>(i) == group->me || here == missing) continue;
      PeerProgress p;
      p.peer = group->ranks[i];
      p.sends_posted = p.sends_done = p.recvs_posted = 1;
      p.recvs_done = here;
      how_far.peers.push_back(p);
    }
  return true;
}

Status BoardTask::mismatch() const {
  if (diverging_ >= 0) return diverging_on_board(*this, diverging_);
  return first() ? unexpected_message(*this) : Status();
}

}  // namespace weft
