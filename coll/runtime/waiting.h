// Waiting: the threads that wait for tasks by a deadline, the progress thread and the thread of
// callbacks; Stall: how long a task has stood still. These classes do not know what a task does,
// nor which rank is to blame for one that is late (failures.h).
#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <memory>
#include <thread>

#include "coll/runtime/lock.h"
#include "topo/base/status.h"

namespace weft {

struct Core;
class Job;
struct Task;

// Measures how long a task has stood still. That is too long when nothing of this process has moved
// for the timeout, or when the task alone has not moved for kStandstill timeouts: other tasks that
// move may keep the task's peers busy.
class Stall {
 public:
  using Clock = std::chrono::steady_clock;
  static constexpr int kStandstill = 4;

  // Takes the time `now` into account. `moved`: the task has moved since the last look. `moves`: a
  // count of all that moves in this process. Returns true when the task has stood still too long.
  bool look(Clock::time_point now, bool moved, std::uint64_t moves, Clock::duration timeout) {
    // A process that did not look for long did not run, or did something else: no peer was late.
    const auto gap = now - looked_at_;
    if (looked_at_ == Clock::time_point{} || moved) {
      moved_at_ = any_at_ = now;
    } else if (moves != moves_) {
      any_at_ = now;
    } else if (gap > timeout / 4) {
      any_at_ += gap - timeout / 4;
      moved_at_ += gap - timeout / 4;
    }
    moves_ = moves;
    looked_at_ = now;
    return now - any_at_ > timeout || now - moved_at_ > kStandstill * timeout;
  }
  // When the task moved last, as far as the looks tell.
  Clock::time_point moved_at() const { return moved_at_; }
  // How long nothing of this process had moved at the last look, seen from `now`.
  Clock::duration idle(Clock::time_point now) const { return now - any_at_; }

 private:
  Clock::time_point moved_at_{}, any_at_{}, looked_at_{};
  std::uint64_t moves_ = 0;
};

class Waiting {
 public:
  explicit Waiting(Core& core) : core_(core) {}

  // Suspects a task that has stood still for too long, or ranks that disagree, and ends what has
  // failed elsewhere. Returns true when the task is over.
  bool check_deadline(Task* task, std::chrono::steady_clock::time_point now)
      WEFT_REQUIRES(core_held);
  // Waits until `end`, or until the task is over by itself, by its deadline or by a failure.
  // Returns true when the task is over. Lets the mutex go meanwhile.
  bool wait_until(Task* task, std::chrono::steady_clock::time_point end, CoreLock& lock)
      WEFT_REQUIRES(core_held);
  // Waits for the task, gives it back and returns its status. Sets `give_way` where the caller is
  // to yield its core once the mutex is free. Lets the mutex go meanwhile.
  Status wait(Task* task, CoreLock& lock, bool& give_way) WEFT_REQUIRES(core_held);
  // Waits as above, and yields the core.
  Status wait(Task* task) WEFT_EXCLUDES(core_held);
  // Called without the mutex by a thread of the program that waits while nothing moves; null: none.
  void (*while_waiting)() = nullptr;

  // ---- the progress thread
  void start_serving() WEFT_EXCLUDES(core_held);  // throws Error
  void stop_serving() noexcept WEFT_EXCLUDES(core_held);
  bool served() const { return served_; }  // whether there is a progress thread
  // A thread of the program starts a task, or moves tasks along.
  void come_by() WEFT_REQUIRES(core_held) {
    visits_.store(visits_.load(std::memory_order_relaxed) + 1, std::memory_order_relaxed);
  }
  // After a task was started: the program may be elsewhere next.
  void wake_server() {
    if (asleep_) [[unlikely]]
      to_serve_.notify_one();
  }

  // ---- callbacks of tasks that are over
  // Starts the thread that runs the GPU lanes' callbacks, which may wait for a lane's own work.
  void start_calling() WEFT_REQUIRES(core_held);
  void stop_calling() noexcept WEFT_EXCLUDES(core_held);  // ends that thread
  // Runs callbacks, with the mutex let go; a GPU lane leaves them to that thread.
  void call_ended(CoreLock& lock) WEFT_REQUIRES(core_held);
  // A task that a lane moves is over.
  void lane_task_over() { lane_task_over_.notify_all(); }

  // ---- the control plane
  // Calls meet(), which waits for other ranks on the control plane; a thread answers peers on the
  // rails meanwhile.
  void answer_while(const std::function<void()>& meet) WEFT_EXCLUDES(core_held);
  // Waits until no rank of the job needs data that this rank has sent, then calls meet(), which
  // waits for the other ranks. Peers get answers all the time.
  void settle_rails(const Job& of, const std::function<void()>& meet) WEFT_EXCLUDES(core_held);

 private:
  void end_wait(const Task* task, CoreLock& lock) WEFT_REQUIRES(core_held);
  void serve() WEFT_EXCLUDES(core_held);  // the progress thread's loop
  // Until the progress thread is woken, or rails need a poll.
  void sleep(CoreLock& lock) WEFT_REQUIRES(core_held);

  Core& core_;
  int waiters_ WEFT_GUARDED_BY(core_held) = 0;  // threads in wait_until(), which make progress
  std::condition_variable_any lane_task_over_;
  std::atomic<bool> served_{false};
  std::atomic<bool> asleep_{false};       // the progress thread waits for `to_serve_`
  std::atomic<std::uint64_t> visits_{0};  // rises whenever the program comes by
  std::condition_variable_any to_serve_, to_call_;
  std::thread server_, caller_;                    // the progress thread, the thread of callbacks
  bool calls_ WEFT_GUARDED_BY(core_held) = false;  // whether there is a thread of callbacks
};

// A job that does what the core's job does, with answer_while() around gathers.
std::unique_ptr<Job> make_answering_job(Core& core);

}  // namespace weft
