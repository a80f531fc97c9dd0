// Runs collectives by plans, a window of them per communicator at a time, and caches tasks that are
// set up. This file does not depend on a plan's algorithm.
#include "coll/tasks/schedule_task.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "coll/engine/signature.h"
#include "coll/tasks/agreement.h"

namespace weft {
namespace {

// Collectives of one communicator under way at a time. More would use up the cells and slots that
// the first ones need to complete, and fewer suffice to keep a link busy.
constexpr std::uint64_t kWindow = 8;

// Number of free tasks that stay set up for their plans. If none of them is set up for the plan of
// a call, a call of more than kLittleScratch bytes takes the task with the most scratch.
constexpr std::size_t kKeptSetUp = 4, kLittleScratch = 64 << 10;

}  // namespace

// ---- free tasks ----------------------------------------------------------------------------

// Setting a plan up takes longer than running it over a few bytes. Alternating calls, such as a
// barrier and an all_reduce, each find their own task. Long calls share one task's scratch.
void ScheduleTask::find_free(SchedulePool& pool, const Plan& plan, std::size_t bytes) {
  auto& free = pool.free;
  const auto add = [&]() WEFT_REQUIRES(core_held) {
    pool.all.push_back(std::make_unique<ScheduleTask>(pool.scratch));
    free.push_back(pool.all.back().get());
  };
  if (free.empty()) add();
  if (free.back()->run_.bound_to(plan)) return;
  // Only the most recent: a burst of asynchronous calls leaves many free tasks.
  const std::span recent = std::span(free).last(std::min(kKeptSetUp, free.size()));
  auto best = std::ranges::find_if(recent, [&](auto* t) { return t->run_.bound_to(plan); });
  if (best == recent.end() && bytes > kLittleScratch)
    best = std::ranges::max_element(recent, {}, [](auto* t) { return t->run_.scratch_bytes(); });
  if (best != recent.end())
    std::swap(*best, recent.back());
  else if (pool.all.size() < kKeptSetUp && free.back()->number > 0)
    add();
}

ScheduleTask* ScheduleTask::begin(GroupState& group, const PreparedRef& prepared,
                                  std::uint64_t number, const Call& call,
                                  std::vector<std::size_t>&& blocks) {
  Core& core = *group.core;
  auto& free = core.schedules.free;
  if (free.empty() || !free.back()->run_.bound_to(*prepared->plan)) [[unlikely]]
    find_free(core.schedules, *prepared->plan, call.total_bytes);
  ScheduleTask* const task = free.back();
  free.pop_back();
  task->group = &group;
  task->prepared = prepared;
  task->number = number;
  task->record = 0;
  task->call = call;
  if (call.is_vector) [[unlikely]]
    task->blocks_ = std::move(blocks);
  // If no rank knows the total size, the time is not attributed to a message size.
  task->timing = {.algorithm = prepared->timed ? prepared->algorithm : nullptr};
  task->over = task->moved = false;
  if (!task->status.ok()) [[unlikely]]
    task->status = {};
  task->receipts.reset();
  task->stall = {};
  task->look_after = kLookAfter;
  task->start_ = group.starts++;
  const bool now = group.next.empty() && task->may_start();
  if (!core.tasks.submit(task, now)) return task;
  if (now)
    task->launch();
  else
    group.next.push_back(task);
  return task;
}

void ScheduleTask::release() {
  SchedulePool& pool = group->core->schedules;
  prepared.drop();
  if (pool.free.size() < kWindow + kKeptSetUp) [[likely]]
    return pool.free.push_back(this);
  // After a burst: resets this task, and puts it where find_free() looks last.
  run_ = {};
  run_.share_scratch(pool.scratch);
  blocks_ = {};
  pool.free.insert(pool.free.begin(), this);
}

// ---- progress ------------------------------------------------------------------------------

bool ScheduleTask::may_start() const {
  return group->running.empty() || start_ - group->running.front()->start_ < kWindow;
}

void ScheduleTask::launch() {
  Core& core = *group->core;
  group->running.push_back(this);
  moved = true;  // it was queued, not stalled
  call.id_high = id;
  const Plan& plan = *prepared->plan;
  for (const std::uint8_t link : plan.links) core.links.use(link);
  compute_ = group->compute;
  const bool on_device = compute_ && compute_->on_device();
  call.streaming = call.total_bytes >= core.tuning.streaming_bytes && !on_device;
  call.copies_results = !call.streaming && !core.oversubscribed;
  run_.start(plan, call, compute_ ? slicing_for(*compute_, plan) : prepared->slicing,
             core.links.all, compute_);
  if (compute_) core.tasks.ask(this);
  if (run_.done()) core.tasks.mark_ready(this);
}

Task::Step ScheduleTask::progress() {
  if (!run_.done()) run_.progress();
  if (compute_ && compute_->busy()) moved = true;  // it does not wait for a rank
  if (run_.failure() != Code::kOk) [[unlikely]]
    return Step::kFailed;
  return run_.done() ? Step::kDone : Step::kGoOn;
}

void ScheduleTask::done() {
  Core& core = *group->core;
  group->remember(call.tag, run_.head());
  // After a burst of asynchronous calls many tasks are kept, but only a few run at a time.
  if (core.schedules.all.size() > kKeptSetUp && run_.scratch_bytes() > kLittleScratch)
    run_.leave_scratch();
  if (group->running.front() == this) [[likely]]
    group->running.pop_front();
  else
    std::erase(group->running, this);
  for (ScheduleTask* waits : group->next) waits->moved = true;
  while (!group->next.empty() && group->next.front()->may_start()) {
    ScheduleTask* const next = group->next.front();
    group->next.pop_front();
    core.tasks.launch(next);
    next->launch();
  }
  // The last collective but one: its late messages have had the time of one collective to arrive.
  const Past& past = group->past[(group->next_past + group->past.size() - 2) % group->past.size()];
  Head theirs;
  for (const std::size_t l : core.links.polled)
    if (past.head.sign && core.links.all[l]->unexpected(kNoRank, past.tag, kPlaceMask, theirs) !=
                              kNoRank) [[unlikely]]
      if (const Status left = unexpected_after(core, past, *core.links.all[l]); !left.ok())
        return core.failures.suspect({.scope = core.failures.scope_of(*group), .why = left});
}

void ScheduleTask::cancel() {
  run_.abandon();
  group->running.clear();
  group->next.clear();
}

// ---- state for the runtime -----------------------------------------------------------------

Rank ScheduleTask::waiting_for() const {
  return id != 0 || group->running.empty() ? run_.waiting_for()
                                           : group->running.front()->waiting_for();
}

bool ScheduleTask::survey(Recorder::Stalled& how_far) const {
  if (id == 0) return false;
  how_far.part = start_ + 1;
  how_far.rounds = run_.rounds();
  how_far.rounds_done = run_.rounds_done();
  for (const Run::Progress& p : run_.survey())
    how_far.peers.push_back(
        {p.peer, p.link, p.sends_posted, p.sends_done, p.recvs_posted, p.recvs_done});
  return true;
}

Status ScheduleTask::failure() const {
  Core& core = *group->core;
  const Rank peer = run_.failed_peer();
  const Status why = core.links.all[static_cast<std::size_t>(run_.failed_link())]->cause(peer);
  const bool names_rail = why.message().find(", rail ") != std::string::npos;
  return {run_.failure(),
          fmt::format("{}: {} ({}{})", title(what()),
                      why.ok() ? fmt::format("rank {}", peer) : why.message(), run_.failed_step(),
                      names_rail ? std::string() : core.links.rail_name(run_.failed_link())),
          culprit(why, peer)};
}

Status ScheduleTask::mismatch() const {
  if (id == 0) return {};  // it waits for the window: it has sent nothing
  return run_.failure() == Code::kMismatch ? disputed_call(*group, run_)
                                           : unexpected_message(*this, &run_);
}

}  // namespace weft
