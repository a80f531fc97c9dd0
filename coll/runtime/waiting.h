// Waiting: the threads that wait for tasks with a deadline, the progress thread and the callback
// thread; Stall: how long a task has made no progress. These classes do not depend on what a task
// does, nor on which rank caused it to be late (failures.h).
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

// Measures how long a task has made no progress. The limit is the timeout if nothing in this
// process has moved. It is kStandstill timeouts if other tasks have moved, since they may keep the
// task's peers busy.
class Stall {
 public:
  using Clock = std::chrono::steady_clock;
  static constexpr int kStandstill = 4;

  // Updates the times. `moved`: the task has moved since the last look(). `moves`: Tasks::moves().
  // Returns true if the limit is exceeded.
  bool look(Clock::time_point now, bool moved, std::uint64_t moves, Clock::duration timeout) {
    // After a long gap between calls, this process was suspended or busy, and no peer was late.
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
  // When the task moved last, to the resolution of look().
  Clock::time_point moved_at() const { return moved_at_; }
  // How long nothing in this process has moved, as of the last look().
  Clock::duration idle(Clock::time_point now) const { return now - any_at_; }

 private:
  Clock::time_point moved_at_{}, any_at_{}, looked_at_{};
  std::uint64_t moves_ = 0;
};

class Waiting {
 public:
  explicit Waiting(Core& core) : core_(core) {}

  // Adds a suspicion if the task has stalled for too long or ranks disagree, and processes failures
  // that other ranks reported. Returns true if the task is over.
  bool check_deadline(Task* task, std::chrono::steady_clock::time_point now)
      WEFT_REQUIRES(core_held);
  // Waits until `end`, or until the task completes, exceeds its deadline or fails. Returns true if
  // the task is over. Unlocks the mutex meanwhile.
  bool wait_until(Task* task, std::chrono::steady_clock::time_point end, CoreLock& lock)
      WEFT_REQUIRES(core_held);
  // Waits for the task, releases it and returns its status. Sets `give_way` if the caller should
  // yield its core after unlocking the mutex. Unlocks the mutex meanwhile.
  Status wait(Task* task, CoreLock& lock, bool& give_way) WEFT_REQUIRES(core_held);
  // Waits as above, and yields the core.
  Status wait(Task* task) WEFT_EXCLUDES(core_held);
  // Called without the mutex by a waiting thread of the program while nothing moves; null: none.
  void (*while_waiting)() = nullptr;

  // ---- the progress thread
  void start_serving() WEFT_EXCLUDES(core_held);  // throws Error
  void stop_serving() noexcept WEFT_EXCLUDES(core_held);
  bool served() const { return served_; }  // whether there is a progress thread
  // Called when a thread of the program starts or progresses tasks.
  void come_by() WEFT_REQUIRES(core_held) {
    visits_.store(visits_.load(std::memory_order_relaxed) + 1, std::memory_order_relaxed);
  }
  // Called after a task was started: the program may not wait for it soon.
  void wake_server() {
    if (asleep_) [[unlikely]]
      to_serve_.notify_one();
  }

  // ---- callbacks of tasks that are over
  // Starts the callback thread: it runs the callbacks of GPU lanes, which may wait for a lane's own
  // work.
  void start_calling() WEFT_REQUIRES(core_held);
  void stop_calling() noexcept WEFT_EXCLUDES(core_held);  // ends that thread
  // Runs callbacks with the mutex unlocked; on a GPU lane, leaves them to the callback thread.
  void call_ended(CoreLock& lock) WEFT_REQUIRES(core_held);
  // A task that a lane progresses is over.
  void lane_task_over() { lane_task_over_.notify_all(); }

  // ---- the control plane
  // Calls meet(), which waits for other ranks on the control plane; a thread answers peers on the
  // rails meanwhile.
  void answer_while(const std::function<void()>& meet) WEFT_EXCLUDES(core_held);
  // Waits until no rank of the job needs data that this rank has sent, then calls meet(), which
  // waits for the other ranks. Peers get answers throughout.
  void settle_rails(const Job& of, const std::function<void()>& meet) WEFT_EXCLUDES(core_held);

 private:
  void end_wait(const Task* task, CoreLock& lock) WEFT_REQUIRES(core_held);
  void serve() WEFT_EXCLUDES(core_held);  // the progress thread's loop
  // Sleeps until the progress thread is woken, or rails need a poll.
  void sleep(CoreLock& lock) WEFT_REQUIRES(core_held);

  Core& core_;
  int waiters_ WEFT_GUARDED_BY(core_held) = 0;  // threads in wait_until(), which make progress
  std::condition_variable_any lane_task_over_;
  std::atomic<bool> served_{false};
  std::atomic<bool> asleep_{false};       // the progress thread waits for `to_serve_`
  std::atomic<std::uint64_t> visits_{0};  // incremented by come_by()
  std::condition_variable_any to_serve_, to_call_;
  std::thread server_, caller_;                    // the progress thread, the thread of callbacks
  bool calls_ WEFT_GUARDED_BY(core_held) = false;  // whether there is a thread of callbacks
};

// Wraps the core's job, with answer_while() around gathers.
std::unique_ptr<Job> make_answering_job(Core& core);

}  // namespace weft
