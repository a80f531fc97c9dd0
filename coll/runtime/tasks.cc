#include "coll/runtime/tasks.h"

#include <algorithm>

#include "coll/runtime/failures.h"
#include "coll/runtime/links.h"
#include "coll/runtime/telemetry.h"
#include "transport/integrity/checked.h"

namespace weft {

bool Tasks::submit(Task* task, bool launched) {
  task->at = tasks_.size();
  tasks_.push_back(task);
  if (launched && !task->group->broken) [[likely]] {
    launch(task);
    return true;
  }
  telemetry_->open(*task);
  if (task->group->broken) finish(task, task->group->failure);
  return !task->over;
}

void Tasks::launch(Task* task) {
  // At least half of the table stays empty, so that a free place is found quickly. When the table
  // grows, tasks under way keep their ids.
  if (++enlisted_ * 2 >= by_id_.size()) {
    by_id_.assign(by_id_.size() * 2, nullptr);
    for (Task* other : tasks_)
      if (other->id) place_of(other->id) = other;
  }
  while (next_id_ >= kCheckedIds || place_of(next_id_))
    next_id_ = next_id_ < kCheckedIds ? next_id_ + 1 : 1;
  task->id = next_id_++;
  place_of(task->id) = task;
  telemetry_->starting(*task);
}

void Tasks::finish(Task* task, const Status& status) {
  task->over = true;
  if (!status.ok()) task->status = status;  // otherwise task->status is ok already
  telemetry_->end(*task);
  ++moves_;
  if (task->id) {
    place_of(std::exchange(task->id, 0)) = nullptr;
    --enlisted_;
  }
  if (task->at != Task::kNowhere) {
    tasks_[task->at] = tasks_.back();
    tasks_[task->at]->at = task->at;
    tasks_.pop_back();
    task->at = Task::kNowhere;
  }
  if (task->asked) {
    std::erase(asked_, task);
    task->asked = false;
  }
  if (failures_.any_suspicion()) [[unlikely]]
    failures_.forget(task);
  if (!task->on_done && !task->keep) return;
  const bool detached = task->keep != nullptr;
  ended_.push_back({std::exchange(task->on_done, nullptr), status, std::move(task->keep)});
  if (detached) task->release();
}

bool Tasks::progress() {
  const std::uint64_t before = moves_;
  const Links& links = links_;
  for (const std::size_t l : links.polled) {
    const std::size_t n = links.all[l]->poll(completions_);
    if (n == 0) continue;
    moves_ += n;
    for (std::size_t i = 0; i < n; ++i) {
      const auto id = static_cast<std::uint32_t>(completions_[i].id >> 32);
      Task* const task = place_of(id);
      if (!task || task->id != id) continue;
      task->moved = true;
      task->complete(completions_[i]);
      mark_ready(task);
    }
  }
  // Both lists may grow during the loops.
  for (std::size_t i = 0; i < marked_.size(); ++i) {
    marked_[i]->marked = false;
    advance(marked_[i]);
  }
  marked_.clear();
  for (std::size_t i = 0; i < asked_.size();) {
    Task* const task = asked_[i];
    advance(task);
    if (i < asked_.size() && asked_[i] == task) ++i;
  }
  return moves_ != before;
}

void Tasks::advance(Task* task) {
  const Task::Step step = task->progress();
  if (step == Task::Step::kFailed) [[unlikely]]
    return failures_.suspect(
        {Failures::Suspicion::What::kTransfer, failures_.scope_of(*task->group), task});
  if (step == Task::Step::kGoOn) return;
  // After its call returns, a thread may not poll for a long time, so it sends the receipts first.
  if (links_.rails && task->id) {
    if (!task->receipts) task->receipts = links_.rails->tell_receipts();
    if (!links_.rails->receipts_sent(*task->receipts)) return ask(task);
  }
  task->done();
  finish(task, {});
}

void Tasks::end_broken() {
  std::vector<Task*> failed;
  for (Task* task : tasks_)
    if (task->group->broken) failed.push_back(task);
  std::erase_if(marked_, [](Task* task) {
    return task->group->broken && std::exchange(task->marked, false);
  });
  for (Task* task : failed) {
    task->cancel();
    if (task->id) links_.cancel(task->id);
  }
  for (Task* task : failed) finish(task, task->group->failure);
}

}  // namespace weft
