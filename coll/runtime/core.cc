// Progress: takes tasks in, polls the transports and finishes the tasks that are over.
// This file does not know deadlines, nor why a task failed.
#include "coll/runtime/core.h"

#include <utility>

#include "transport/integrity/checked.h"

namespace weft {

void Core::submit(Task* task) {
  task->at = tasks.size();
  tasks.push_back(task);
  if (task->group->broken) [[unlikely]]
    return finish(task, task->group->failure);
  task->start();
}

void Core::enlist(Task* task) {
  // The table stays half empty, so that an id with a free place is near; it grows with what is
  // under way, and everybody keeps its id.
  if (++enlisted * 2 >= by_id.size()) {
    by_id.assign(by_id.size() * 2, nullptr);
    for (Task* other : tasks)
      if (other->id) place_of(other->id) = other;
  }
  while (next_id >= kCheckedIds || place_of(next_id))
    next_id = next_id < kCheckedIds ? next_id + 1 : 1;
  task->id = next_id++;
  place_of(task->id) = task;
}

void Core::finish(Task* task, const Status& status) {
  task->over = true;
  if (!status.ok()) task->status = status;  // else it is ok already
  telemetry->end(*task);
  ++moves;
  if (task->id) {
    place_of(std::exchange(task->id, 0)) = nullptr;
    --enlisted;
  }
  if (task->at != Task::kNowhere) {
    tasks[task->at] = tasks.back();
    tasks[task->at]->at = task->at;
    tasks.pop_back();
    task->at = Task::kNowhere;
  }
  if (task->asked) {
    std::erase(asked, task);
    task->asked = false;
  }
  if (!suspicions.empty()) [[unlikely]]  // the first one is left to judge()
    std::erase_if(suspicions, [&](const Suspicion& s) WEFT_REQUIRES(mutex) {
      return s.task == task && !(judging && &s == suspicions.data());
    });
  if (!task->on_done && !task->keep) return;
  const bool detached = task->keep != nullptr;
  ended.push_back({std::exchange(task->on_done, nullptr), status, std::move(task->keep)});
  if (detached) task->release();
}

int Core::link_of(Rank a, Rank b) const {
  if (shm_peer[static_cast<std::size_t>(b)]) return shm_link;
  // Both ends must agree: the rail of the lower rank.
  return first_rail_link + topology->rail(std::min(a, b));
}

bool Core::progress() {
  const std::uint64_t before = moves;
  for (const std::size_t l : polled) {
    const std::size_t n = links[l]->poll(completions);
    moves += n;
    for (std::size_t i = 0; i < n; ++i) {
      const auto id = static_cast<std::uint32_t>(completions[i].id >> 32);
      Task* const task = place_of(id);
      if (!task || task->id != id) continue;
      task->moved = true;
      task->complete(completions[i]);
      stir(task);
    }
  }
  // Both lists may grow meanwhile.
  for (std::size_t i = 0; i < stirred.size(); ++i) {
    stirred[i]->stirred = false;
    advance(stirred[i]);
  }
  stirred.clear();
  for (std::size_t i = 0; i < asked.size();) {
    Task* const task = asked[i];
    advance(task);
    if (i < asked.size() && asked[i] == task) ++i;
  }
  return moves != before;
}

void Core::advance(Task* task) {
  const Task::Step step = task->progress();
  if (step == Task::Step::kFailed) [[unlikely]]
    return suspect({Suspicion::What::kTransfer, scope_of(*task->group), task});
  if (step == Task::Step::kGoOn) return;
  // Who has its result may not come here again for long: its peers must not need it for theirs.
  if (rails && task->id) {
    if (!task->receipts) task->receipts = rails->tell_receipts();
    if (!rails->receipts_sent(*task->receipts)) return ask(task);
  }
  task->done();
  finish(task, {});
}

}  // namespace weft
