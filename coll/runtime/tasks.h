// Tasks: the tasks of a process; progresses them when their transfers end, and ends them. This
// class does not depend on deadlines, on kinds of tasks, or on why a task failed.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <utility>
#include <vector>

#include "coll/runtime/lock.h"
#include "coll/runtime/task.h"
#include "transport/transport.h"

namespace weft {

class Failures;
class Links;
class Telemetry;

class Tasks {
 public:
  // `telemetry` is set before the first task is submitted.
  Tasks(Links& links, Failures& failures, const std::unique_ptr<Telemetry>& telemetry)
      : links_(links), failures_(failures), telemetry_(telemetry) {}

  // Adds a task, and opens the record of its call. launched: its transfers start now. Returns false
  // if its communicator is over: the task has ended.
  bool submit(Task* task, bool launched) WEFT_REQUIRES(core_held);
  // Gives the task the id of its transfers, which start now.
  void launch(Task* task) WEFT_REQUIRES(core_held);
  // Makes the next progress() advance the task.
  void mark_ready(Task* task) WEFT_REQUIRES(core_held) {
    if (!std::exchange(task->marked, true)) marked_.push_back(task);
  }
  // Makes every progress() advance the task until it is over.
  void ask(Task* task) WEFT_REQUIRES(core_held) {
    if (!std::exchange(task->asked, true)) asked_.push_back(task);
  }
  // Polls the transports and advances tasks. Returns true if any transfer or task ended.
  bool progress() WEFT_REQUIRES(core_held);
  // Marks the task as over and queues its callback.
  void finish(Task* task, const Status& status) WEFT_REQUIRES(core_held);
  // Cancels the tasks of communicators that are over, and ends them with the communicator's
  // failure.
  void end_broken() WEFT_REQUIRES(core_held);

  const std::vector<Task*>& all() const WEFT_REQUIRES(core_held) { return tasks_; }
  // Counts ends of transfers and tasks.
  std::uint64_t moves() const WEFT_REQUIRES(core_held) { return moves_; }

  // The callback of a task that is over.
  struct Ended {
    std::function<void(const Status&)> call;
    Status status;
    std::shared_ptr<GroupState> keep;
  };
  bool any_ended() const WEFT_REQUIRES(core_held) { return !ended_.empty(); }
  std::vector<Ended> take_ended() WEFT_REQUIRES(core_held) { return std::exchange(ended_, {}); }

  // The next id to try, for tests.
  void number_from(std::uint32_t id) WEFT_REQUIRES(core_held) { next_id_ = id; }

 private:
  void advance(Task* task) WEFT_REQUIRES(core_held);
  Task*& place_of(std::uint32_t id) WEFT_REQUIRES(core_held) {
    return by_id_[id & (by_id_.size() - 1)];
  }

  Links& links_;
  Failures& failures_;
  const std::unique_ptr<Telemetry>& telemetry_;
  std::vector<Task*> tasks_ WEFT_GUARDED_BY(core_held);   // under way
  std::vector<Task*> marked_ WEFT_GUARDED_BY(core_held);  // see mark_ready()
  std::vector<Task*> asked_ WEFT_GUARDED_BY(core_held);   // see ask()
  // Completions of one poll; a local array would be cleared each time.
  std::array<Completion, 64> completions_ WEFT_GUARDED_BY(core_held);
  // The tasks with transfers by the lower bits of their id; the size is a power of two.
  std::vector<Task*> by_id_ WEFT_GUARDED_BY(core_held) = std::vector<Task*>(256);
  std::uint32_t next_id_ WEFT_GUARDED_BY(core_held) = 1;
  std::size_t enlisted_ WEFT_GUARDED_BY(core_held) = 0;  // tasks in by_id_
  std::uint64_t moves_ WEFT_GUARDED_BY(core_held) = 0;
  std::vector<Ended> ended_ WEFT_GUARDED_BY(core_held);
};

}  // namespace weft
