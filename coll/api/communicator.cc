// Turns a call into a task: checks the arguments, describes the call, selects an algorithm and
// starts the task. This file is independent of how a task makes progress.
#include "coll/api/communicator.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdint>
#include <cstring>

#include "coll/codec/coded_task.h"
#include "coll/engine/signature.h"
#include "coll/gpu/begin.h"
#include "coll/runtime/arguments.h"
#include "coll/runtime/selector.h"
#include "coll/select/cost.h"
#include "coll/tasks/board_task.h"
#include "coll/tasks/schedule_task.h"
#include "topo/base/log.h"
#include "topo/base/yield.h"

namespace weft {
namespace {

void finish_alone(Collective c, const Call& call) {  // a communicator of one rank
  const std::size_t element = size_of(call.type);
  const bool packs = c == Collective::kAllGather || c == Collective::kGather;
  const auto at = [&](std::span<const std::size_t> offsets) {
    return call.is_vector ? offsets[0] * element : 0;
  };
  const auto& out_offsets = packs ? call.offsets : call.recv_offsets;
  const std::size_t count = call.is_vector ? call.counts[0] : call.count;
  if (c == Collective::kBarrier || count == 0) return;
  const auto* from = static_cast<const std::byte*>(call.in) + (packs ? 0 : at(call.offsets));
  auto* to = static_cast<std::byte*>(call.out) +
             (packs || c == Collective::kAllToAll ? at(out_offsets) : 0);
  if (reduces(c) && call.op == RedOp::kPreMulSum)
    multiply(to, from, call.type, call.factor, count);
  else if (from != to)
    std::memcpy(to, from, count * element);
}

// Every kLookEvery-th blocking call of a communicator checks whether the job has failed: other
// calls check only while they wait, and small calls may never wait.
constexpr std::uint64_t kLookEvery = 64;

// An asynchronous call polls the board this many times before it becomes a task: polls cost less
// than a task and its Request.
constexpr int kPollsAtStart = 64;

// A collective that is about to begin.
struct Beginning {
  GroupState& group;
  Collective collective;
  Call& call;
  Rank root;
  bool blocking;
  bool any_algorithm;  // ignore the user's choice
  bool in_place = false;
  bool repeats = false;  // same arguments as the last call with this root
  Status status = {};
  Task* task = nullptr;  // null: the call is over, with `status`
};

// Checks the arguments, and offers the call to the device. Returns true if begin() must start the
// call on the host: the checks passed, and no GPU lane took it.
bool pass_checks(Beginning& b) {
  GroupState& g = b.group;
  if (!check_arguments(b.collective, b.call, b.root, g.me, g.ranks.size(), b.in_place, b.status))
    return false;
  if (b.call.codec != Codec::kNone) {
    b.status = check_coded(b.collective, b.call, on_device(b.call.in) || on_device(b.call.out));
    return b.status.ok();
  }
  bool taken = false;
  if (Device* const d = device()) [[unlikely]]
    b.task = begin_on_device(*d, g, b.collective, b.call, b.root, b.in_place, b.blocking, b.status,
                             taken);
  return !taken;
}

// Whether a call is valid and has the same arguments as the `last` one with its root, except for
// the addresses. Then sets `in_place`.
bool repeats(const Prepared& last, const Call& call, Rank root, bool& in_place) {
  const Prepared::Arguments& of = last.of;
  if (of.selection == 0 || of.count != call.count || of.type != call.type || of.op != call.op ||
      of.root != root || call.is_vector || call.op == RedOp::kPreMulSum ||
      call.codec != Codec::kNone || (last.in_bytes && !call.in) || (last.out_bytes && !call.out))
    return false;
  const auto in = reinterpret_cast<std::uintptr_t>(call.in);
  const auto out = reinterpret_cast<std::uintptr_t>(call.out);
  const bool one_buffer = last.in_bytes == 0 || last.out_bytes == 0;
  in_place = one_buffer ? of.in_place : in + last.in_at == out + last.out_at;
  return one_buffer || in_place || in >= out + last.out_bytes || out >= in + last.in_bytes;
}

// Like pass_checks(), but skips the checks of a call that repeats the last one. Checks and offers
// other calls with the mutex unlocked.
bool begins_on_host(Beginning& b, CoreLock& lock) {
  const PreparedRef& last = b.group.prepared_for(b.collective, b.root);
  if (last && repeats(*last, b.call, b.root, b.in_place) && !device()) [[likely]]
    return b.repeats = true;
  bool begins = false;
  lock.without([&] { begins = pass_checks(b); });
  return begins;
}

// The fast path of a call: publishes this rank's message, polls for the members' messages and
// computes the result. Returns null, or a task if messages are still missing. Asynchronous calls,
// and calls with fewer cores than ranks, poll only briefly.
Task* run_on_board(Core& core, const Beginning& b, const PreparedRef& p, std::uint64_t number,
                   std::vector<std::size_t>&& blocks) WEFT_REQUIRES(core_held) {
  GroupState& g = b.group;
  publish_on_board(g, b.collective, b.call, b.root);
  // Recorded after publishing, so that peers see the message sooner.
  const std::uint64_t record = core.telemetry->begin(g, *p, number);
  const auto finished = [&] {
    if (!board_ready(g) || !board_finish(g, b.collective, b.call, b.root).done()) return false;
    core.telemetry->end_at_once(record);
    return true;
  };
  const int spins = core.oversubscribed ? 1 : b.blocking ? core.tuning.spins : kPollsAtStart;
  for (int i = 0; i < spins; ++i) {
    if (finished()) return nullptr;
    if (i > kEager) relax();
  }
  if (b.blocking && core.oversubscribed && core.tasks.all().empty()) {
    // More ranks than cores: yield repeatedly first; a task costs more.
    for (int i = 0; i < 256; ++i) {
      yield_core();
      if (core.mutex.wanted()) break;
      if (finished()) return nullptr;
    }
  }
  // The peers are late, or ranks disagree: continue as a task, which has a deadline.
  return BoardTask::begin(g, p, number, record, b.call, std::move(blocks));
}

// Starts a collective on the host. Returns its task, or null with b.status if the call is over
// already. lock: held by a blocking call.
Task* begin(Core& core, Beginning& b, CoreLock* lock) WEFT_REQUIRES(core_held) {
  GroupState& g = b.group;
  Call& call = b.call;
  const Collective c = b.collective;
  if (b.blocking && g.sequence % kLookEvery == 0 && !g.broken) [[unlikely]] {
    core.failures.hear();
    core.run_callbacks(*lock);
    b.repeats = false;  // the mutex was unlocked meanwhile
  }
  if (g.broken.load(std::memory_order_relaxed)) {
    b.status = g.failure;
    return nullptr;
  }
  std::vector<std::size_t> blocks;
  if (call.is_vector) [[unlikely]]
    blocks = own_blocks(call, g.ranks.size());
  const std::uint64_t sequence = g.sequence++;
  if (g.ranks.size() == 1) {
    finish_alone(c, call);
    return nullptr;
  }
  const std::uint64_t number = sequence + 1;
  if (call.codec != Codec::kNone) [[unlikely]]
    return CodedTask::begin(
        g,
        described(g, c, call,
                  {.count = call.count, .type = call.type, .op = call.op, .codec = call.codec}),
        number, call);
  const Algorithm* forced = b.any_algorithm ? nullptr : g.forced[static_cast<std::size_t>(c)];
  PreparedRef& p = g.prepared_for(c, b.root);
  bool prepared = true;
  if (!b.repeats || g.compute || p->of.selection != core.selection || p->of.forced != forced ||
      p->of.in_place != b.in_place || p->of.deterministic != g.shape.deterministic) [[unlikely]] {
    const Prepared::Arguments given{core.selection, forced,  call.count, b.root,
                                    call.type,      call.op, b.in_place, g.shape.deterministic};
    if (!p || p->of != given || call.is_vector || g.compute)
      prepared = prepare(g, c, call, given, p, b.status);
  }
  g.number_call(call, *p, number);
  if (g.part_of.record) [[unlikely]]
    g.name_whole(call.head);

  if (p->board) {
    seal(call.head);
    g.last_on_board = true;
    if (g.board_queue.empty()) return run_on_board(core, b, p, number, std::move(blocks));
  }
  if (p->board) return BoardTask::begin(g, p, number, 0, call, std::move(blocks));
  if (p->empty || !prepared) [[unlikely]] {
    if (p->empty) {
      seal(call.head);
      g.remember(call.tag, call.head);
    }
    core.telemetry->end_at_once(core.telemetry->begin(g, *p, number));
    return nullptr;
  }
  g.last = p->algorithm;
  g.last_on_board = false;
  return ScheduleTask::begin(g, p, number, call, std::move(blocks));
}

// Progresses other tasks, which a loop of calls that complete immediately would starve.
void move_others(Core& core, CoreLock& lock) WEFT_REQUIRES(core_held) {
  if (core.tasks.all().empty()) [[likely]]
    return;
  core.waiting.come_by();
  core.tasks.progress();
  core.run_callbacks(lock);
}

// ---- the Calls of the rows of calls.h -----------------------------------------------------

Call even(const void* in, void* out, std::size_t count, DType type, Reduction op = RedOp::kSum) {
  return {.in = in, .out = out, .count = count, .type = type, .op = op.op, .factor = op.factor};
}

Call uneven(const void* in, void* out, const Blocks& blocks, DType type,
            Reduction op = RedOp::kSum) {
  Call call = even(in, out, 0, type, op);
  call.is_vector = true;
  call.counts = blocks.counts;
  call.offsets = blocks.offsets;
  return call;
}

Call exchanged(const void* in, const Blocks& sent, void* out, const Blocks& received, DType type) {
  Call call = uneven(in, out, sent, type);
  call.recv_counts = received.counts;
  call.recv_offsets = received.offsets;
  return call;
}

}  // namespace

Task* begin_part(GroupState& companion, Collective c, Call& call, Status& status) {
  Beginning b{companion, c, call, 0, false, true};
  Task* task = nullptr;
  if (check_arguments(c, call, 0, companion.me, companion.ranks.size(), b.in_place, b.status))
    task = begin(*companion.core, b, nullptr);
  status = std::move(b.status);
  return task;
}

void Communicator::adapt(Collective c, Call& call) const {
  call.stream = stream_;
  call.ordered = ordered_;
  if (c == Collective::kBarrier) return;
  call.codec = compression_.codec;
  call.residual = compression_.residual;
}

Status Communicator::run(Collective c, Call&& call, Rank root) {
  if (!state_) return empty_communicator(name(c));
  adapt(c, call);
  Core& core = *state_->core;
  Beginning b{*state_, c, call, root, true, any_algorithm_};
  bool give_way = false, on_host = false;
  {
    CoreLock lock(core.mutex);
    on_host = begins_on_host(b, lock);
    if (on_host) b.task = begin(core, b, &lock);
    if (!on_host) [[unlikely]] {
      // A lane runs the call, or the call is over.
    } else if (b.task) {
      b.status = core.waiting.wait(b.task, lock, give_way);
    } else {
      move_others(core, lock);
    }
  }
  if (!on_host && b.task) [[unlikely]]
    return core.waiting.wait(b.task);
  if (give_way) yield_core();
  return std::move(b.status);
}

// ---- Communicator --------------------------------------------------------------------------

GroupState& Communicator::state() const {
  if (!state_) throw Error("this Communicator is empty: moved from, or of a rank without a color");
  return *state_;
}
Communicator Communicator::on(void* stream) const {
  (void)state();
  if (!device()) throw Error("on(stream): missing capability: " + missing_device());
  Communicator bound = *this;
  bound.stream_ = stream;
  bound.ordered_ = true;
  return bound;
}
Communicator Communicator::compressed(const Compression& how) const {
  (void)state();
  if (static_cast<unsigned>(how.codec) > static_cast<unsigned>(Codec::kFp8))
    throw Error(fmt::format("compressed(): {} is not a Codec; pass Codec::kInt8 or Codec::kFp8",
                            static_cast<int>(how.codec)));
  Communicator bound = *this;
  bound.compression_ = how;
  return bound;
}
Rank Communicator::rank() const { return state().me; }
int Communicator::size() const { return static_cast<int>(state().ranks.size()); }
Rank Communicator::world_rank(Rank r) const {
  if (r < 0 || r >= size())
    throw Error(fmt::format("rank {} is not a rank of this communicator (0..{})", r, size() - 1));
  return state_->ranks[static_cast<std::size_t>(r)];
}

Request Communicator::start(Collective c, Call&& call, Rank root) {
  if (!state_) return Request(empty_communicator(name(c)));
  adapt(c, call);
  Core& core = *state_->core;
  Beginning b{*state_, c, call, root, false, any_algorithm_};
  // A lane passes calls that are already checked; its Compute resolves the buffers.
  {
    CoreLock lock(core.mutex);
    core.waiting.come_by();
    if (state_->compute || begins_on_host(b, lock)) {
      b.task = begin(core, b, &lock);
      if (!b.task) move_others(core, lock);
    }
  }
  Request handle(state_, b.task);
  if (!b.status.ok()) handle.status_ = std::move(b.status);
  if (b.task) core.waiting.wake_server();
  return handle;
}
#define WEFT_DEFINE(name, collective, parameters, call, root)                              \
  Status Communicator::name parameters { return run(Collective::collective, call, root); } \
  Request Communicator::name##_async parameters {                                          \
    return start(Collective::collective, call, root);                                      \
  }
WEFT_EACH_COLLECTIVE(WEFT_DEFINE)
#undef WEFT_DEFINE

void Communicator::set_algorithm(Collective collective, std::string_view name) {
  const Algorithm* found = nullptr;
  GroupState& g = state();
  if (name != "auto") {
    found = find_algorithm(collective, name);
    if (!found)
      throw Error(fmt::format("{} has no algorithm '{}'; there are auto, {}",
                              weft::name(collective), name, algorithm_names(collective)));
    if (!found->applies(g.shape))
      throw Error(fmt::format("algorithm '{}' of {} does not apply to {} ranks on {} hosts", name,
                              weft::name(collective), size(), g.shape.hosts.size()));
  }
  const CoreLock lock(g.core->mutex);
  if (found) check_rails(g, *found, 0, true).check();
  g.forced[static_cast<std::size_t>(collective)] = found;
}

std::vector<std::string> Communicator::algorithms(Collective collective) const {
  GroupState& g = state();
  const CoreLock lock(g.core->mutex);
  std::vector<std::string> names;
  for (const Algorithm& a : weft::algorithms())
    if (a.collective == collective && a.applies(g.shape) && check_rails(g, a, 0, true).ok())
      names.emplace_back(a.name);
  return names;
}

void Communicator::set_deterministic(bool deterministic) {
  const CoreLock lock(state().core->mutex);
  state_->shape.deterministic = deterministic;
}

std::string Communicator::last_algorithm() const {
  const CoreLock lock(state().core->mutex);
  if (state_->last_on_board) return "flat";
  return state_->last ? std::string(state_->last->name) : "none";
}

}  // namespace weft
