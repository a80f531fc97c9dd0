// Progress: starts tasks, posts their transfers and finishes the tasks that are over.
// This file does not know deadlines, nor why a task failed.
#include "coll/runtime/core.h"

#include <fmt/format.h>
#include <poll.h>
#include <sched.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <utility>

#include "coll/engine/signature.h"
#include "transport/integrity/checked.h"

namespace weft {
namespace {

// So many tasks are kept as they were set up; calls of more bytes look for one with scratch.
constexpr std::size_t kKeptSetUp = 4, kLittleScratch = 64 << 10;

}  // namespace

// ---- tasks ---------------------------------------------------------------------------------

void Core::add_operation() {
  pool.push_back(std::make_unique<Task>());
  pool.back()->run.share_scratch(scratch);
  free_operations.push_back(pool.back().get());
}

Task* Core::take() {
  if (free_operations.empty()) [[unlikely]]
    add_operation();
  Task* op = free_operations.back();
  free_operations.pop_back();
  op->over = false;
  op->began_ns = 0;
  op->status = {};
  op->receipts.reset();
  op->moved = false;
  op->stirred = false;
  op->stall = {};
  op->look_after = kLookAfter;
  return op;
}

// Setting a plan up takes longer than running it over a few bytes. Calls that alternate, as a
// barrier and an all_reduce do, find what each of them set up. Long ones share one task's
// scratch.
Task* Core::take_for(const Plan& plan, std::size_t bytes) {
  if (!free_operations.empty() && free_operations.back()->run.bound_to(plan)) return take();
  // Those used last; a burst of asynchronous calls leaves any number behind.
  const std::span recent =
      std::span(free_operations).last(std::min(kKeptSetUp, free_operations.size()));
  auto best = std::ranges::find_if(recent, [&](auto* op) { return op->run.bound_to(plan); });
  if (best == recent.end() && bytes <= kLittleScratch && pool.size() < kKeptSetUp) {
    add_operation();
    return take();
  }
  if (best == recent.end() && bytes > kLittleScratch)
    best = std::ranges::max_element(recent, {}, [](auto* op) { return op->run.scratch_bytes(); });
  if (best != recent.end()) std::swap(*best, recent.back());
  return take();
}

// From now on it has transfers.
void Core::enlist(Task* op) {
  // The table stays half empty, so that an id with a free place is near; it grows with what is
  // under way, and everybody keeps its id.
  if (active.size() * 2 >= by_id.size()) {
    by_id.assign(by_id.size() * 2, nullptr);
    for (Task* other : active) place_of(other->id) = other;
  }
  while (next_id >= kCheckedIds || place_of(next_id))
    next_id = next_id < kCheckedIds ? next_id + 1 : 1;
  op->id = next_id++;
  place_of(op->id) = op;
  active.push_back(op);
}

void Core::give_back(Task* op) {
  op->kind = Task::Kind::kFree;
  free_operations.push_back(op);
}

void Core::finish(Task* op, Status status) {
  op->over = true;
  op->status = status;
  telemetry->end(*op);
  if (!op->on_done && !op->keep) return;
  const bool detached = op->keep != nullptr;
  ended.push_back({std::exchange(op->on_done, nullptr), status, std::move(op->keep)});
  if (detached) give_back(op);
}

namespace {

bool may_start(const GroupState& g, const Task& op) {
  return g.running.empty() || op.start - g.running.front()->start < kWindow;
}

void end_running(GroupState& g, Task* op) {
  if (g.running.front() == op) [[likely]]
    g.running.pop_front();
  else
    std::erase(g.running, op);
}

}  // namespace

void Core::start_plan(Task* op, const Plan& plan) {
  GroupState& g = *op->group;
  op->kind = Task::Kind::kPlan;
  op->plan = &plan;
  op->start = g.starts++;
  if (g.next.empty() && may_start(g, *op)) return launch(op);
  g.next.push_back(op);
  launch_next(g);
}

void Core::end_plan(Task* op) {
  GroupState& g = *op->group;
  // Of a burst of asynchronous calls few are under way at once, and all of them are kept.
  if (pool.size() > kKeptSetUp && op->run.scratch_bytes() > kLittleScratch) op->run.leave_scratch();
  end_running(g, op);
  if (g.next.empty()) return;
  for (Task* waits : g.next) waits->moved = true;
  launch_next(g);
}

void Core::launch_next(GroupState& g) {
  while (!g.next.empty() && may_start(g, *g.next.front())) {
    Task* op = g.next.front();
    g.next.pop_front();
    launch(op);
  }
}

void Core::launch(Task* op) {
  GroupState& g = *op->group;
  g.running.push_back(op);
  const Plan& plan = *op->plan;
  op->moved = true;  // it did not stand still: it had no turn
  enlist(op);
  op->call.id_high = op->id;
  for (const std::uint8_t link : plan.links) use_link(link);
  const std::size_t total = op->call.total_bytes;
  op->call.streaming = total >= tuning.streaming_bytes;
  op->call.copies_results = !op->call.streaming && !oversubscribed;
  telemetry->starting(*op, total);
  op->run.start(plan, op->call, slicing_for(tuning, plan, total, costs), links);
  if (op->run.done()) {
    g.remember(op->call.tag, op->run.head());
    std::erase(active, op);
    place_of(op->id) = nullptr;
    end_running(g, op);
    finish(op, {});
  }
}

void Core::start_message(Task* op, bool send, void* data, std::size_t bytes, bool on_device) {
  enter_message(op, send, bytes);
  let_slices_go(op, data, op->slices, on_device);
}

void Core::enter_message(Task* op, bool send, std::size_t bytes) {
  GroupState& g = *op->group;
  const Rank peer = g.ranks[static_cast<std::size_t>(op->root)];
  const auto with = static_cast<std::size_t>(op->root);
  const std::uint64_t number = (send ? g.sends : g.recvs)[with]++;
  std::uint64_t& slices = (send ? g.sent_slices : g.received_slices)[with];
  op->call.head =
      signature(Collective::kSendRecv, op->call, send ? peer : job->rank(), g.id, number + 1);
  seal(op->call.head);
  op->call.tag = static_cast<std::uint64_t>(g.id) << kIdShift | std::uint64_t{1} << kMessageBit |
                 (slices & ((std::uint64_t{1} << (kMessageBit - 1)) - 1));
  op->kind = Task::Kind::kMessage;
  op->slice_bytes = shm_peer[static_cast<std::size_t>(peer)] ? SIZE_MAX : message_slice;
  op->slices = op->slices_left = slices_of(bytes, op->slice_bytes);
  op->slices_posted = op->slices_ready = 0;
  op->slices_over = nullptr;
  op->under_way = false;
  slices += op->slices;
  op->sends = send;
  op->bytes = bytes;
  op->record = telemetry->begin_message(g, send, bytes, op->root, number + 1);
}

void Core::let_slices_go(Task* op, void* data, std::uint32_t end, bool on_device) {
  if (!std::exchange(op->under_way, true)) {
    enlist(op);
    telemetry->starting(*op, op->bytes);
  }
  op->data = static_cast<std::byte*>(data);
  op->on_device = on_device;
  op->slices_ready = end;
  post_slices(op);
}

void Core::post_slices(Task* op) {
  // A peer that does not receive yet has to keep what comes: of long messages a little.
  constexpr std::uint32_t kSentAhead = 2;
  constexpr std::uint64_t kNumbers = (std::uint64_t{1} << (kMessageBit - 1)) - 1;
  const std::uint32_t over = op->slices - op->slices_left;
  const std::uint32_t end =
      op->sends ? std::min(op->slices_ready, over + kSentAhead) : op->slices_ready;
  Transfer t;
  t.kind = op->sends ? Transfer::Kind::kSend : Transfer::Kind::kRecv;
  t.peer = op->group->ranks[static_cast<std::size_t>(op->root)];
  t.on_device = op->on_device;
  t.head = &op->call.head;
  const auto link = static_cast<std::size_t>(link_of(job->rank(), t.peer));
  use_link(link);
  for (std::uint32_t& k = op->slices_posted; k < end; ++k) {
    const std::size_t at = k * op->slice_bytes;
    t.data = op->data + at;
    t.bytes = std::min(op->bytes - at, op->slice_bytes);
    t.tag = (op->call.tag & ~kNumbers) | ((op->call.tag + k) & kNumbers);
    t.id = static_cast<std::uint64_t>(op->id) << 32 | k;
    links[link]->post({&t, 1});
  }
}

int Core::link_of(Rank a, Rank b) const {
  if (shm_peer[static_cast<std::size_t>(b)]) return shm_link;
  // Both ends must agree: the rail of the lower rank.
  return first_rail_link + topology->rail(std::min(a, b));
}

// ---- boards --------------------------------------------------------------------------------

void Core::start_board(Task* op) {
  GroupState& g = *op->group;
  op->kind = Task::Kind::kBoard;
  g.board_queue.push_back(op);
  if (g.board_queue.size() > 1) return;
  boards_busy.push_back(&g);
  publish_on_board(g, op->collective, op->call, op->root);
}

// ---- progress ------------------------------------------------------------------------------

bool Core::progress() {
  auto& batch = completions;
  bool moved = false;
  for (const std::size_t l : polled) {
    const std::size_t n = links[l]->poll(batch);
    moved = moved || n != 0;
    for (std::size_t i = 0; i < n; ++i) {
      const auto id = static_cast<std::uint32_t>(batch[i].id >> 32);
      Task* op = place_of(id);
      if (!op || op->id != id) continue;
      op->moved = true;
      if (op->kind == Task::Kind::kPlan) {
        op->complete(batch[i]);
      } else if (batch[i].code != Code::kOk) {
        fail_message(op, batch[i].code, l);
        return true;
      } else {
        --op->slices_left;
        if (op->slices_over) op->slices_over->push_back(static_cast<std::uint32_t>(batch[i].id));
      }
    }
  }
  if (moved || receipts_owed) {
    moves += moved;
    if (end_tasks() == Swept::kAllFailed) return true;
  }
  return (!boards_busy.empty() && progress_boards()) || moved;
}

Core::Swept Core::end_tasks() {
  receipts_owed = false;
  for (std::size_t i = 0; i < active.size();) {
    Task* op = active[i];
    bool done;
    if (op->kind == Task::Kind::kPlan) {
      if (std::exchange(op->stirred, false)) op->run.progress();
      if (op->run.failure() != Code::kOk) [[unlikely]] {
        fail_run(op);
        return Swept::kAllFailed;
      }
      done = op->run.done();
    } else {
      if (op->slices_posted < op->slices_ready) post_slices(op);
      done = op->slices_left == 0;
    }
    // Who has its result may not come here again for long: its peers must not need it for theirs.
    if (done && rails) {
      if (!op->receipts) op->receipts = rails->tell_receipts();
      done = rails->receipts_sent(*op->receipts);
      receipts_owed = receipts_owed || !done;
    }
    if (!done) {
      ++i;
      continue;
    }
    place_of(op->id) = nullptr;
    active[i] = active.back();
    active.pop_back();
    GroupState& g = *op->group;
    const bool collective = op->kind == Task::Kind::kPlan;
    if (collective) {
      g.remember(op->call.tag, op->run.head());
      end_plan(op);
    }
    finish(op, {});
    if (collective && fail_on_leftover(g)) return Swept::kAllFailed;
  }
  return Swept::kGoOn;
}

bool Core::progress_boards() {
  bool moved = false;
  for (std::size_t i = 0; i < boards_busy.size();) {
    GroupState& g = *boards_busy[i];
    while (!g.board_queue.empty() && board_ready(g)) {
      Task* first = g.board_queue.front();
      const BoardOutcome outcome = board_finish(g, first->collective, first->call, first->root);
      if (!outcome.done()) {
        fail_on_board(g, first->call.head, outcome.diverging);
        return true;
      }
      finish(first, {});
      moved = true;
      ++moves;
      g.board_queue.pop_front();
      for (Task* next : g.board_queue) next->moved = true;
      if (!g.board_queue.empty()) {
        Task* next = g.board_queue.front();
        publish_on_board(g, next->collective, next->call, next->root);
      }
    }
    if (g.board_queue.empty())
      boards_busy.erase(boards_busy.begin() + static_cast<std::ptrdiff_t>(i));
    else
      ++i;
  }
  return moved;
}

}  // namespace weft
