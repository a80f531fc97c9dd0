// The mutex that threads share while they wait for tasks, and how long a task has stood still.
// Nothing here knows what a task does.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>

#include "topo/base/mutex.h"

namespace weft {

// A mutex whose holder sees that other threads want it: a thread that polls for long lets them in.
// Every call takes it, mostly as the only thread: it costs an exchange each way, inline, where
// std::mutex costs some fifty instructions.
class WEFT_CAPABILITY("mutex") FairMutex {
 public:
  void lock() WEFT_ACQUIRE() {
    if (!try_lock()) [[unlikely]]
      lock_later();
  }
  bool try_lock() WEFT_TRY_ACQUIRE(true) {
    int free = 0;
    return held_.compare_exchange_strong(free, 1);
  }
  // A thread counts itself in `wanted_` before it looks at `held_`, and this one looks the other
  // way round: either that thread finds the mutex free, or this one finds that it waits.
  void unlock() WEFT_RELEASE() {
    held_.exchange(0);
    if (wanted_.load() > 0) [[unlikely]]
      held_.notify_one();
  }
  // Tells clang that the caller holds the mutex, where an annotation cannot name the mutex.
  void assert_held() const WEFT_ASSERT_CAPABILITY(this) {}
  bool wanted() const { return wanted_.load(std::memory_order_relaxed) > 0; }

 private:
  void lock_later() WEFT_NO_THREAD_SAFETY_ANALYSIS {
    wanted_.fetch_add(1);
    while (!try_lock()) held_.wait(1);
    wanted_.fetch_sub(1);
  }
  std::atomic<int> held_{0};  // an int, which the kernel waits for directly
  std::atomic<int> wanted_{0};
};

using CoreLock = BasicMutexLock<FairMutex>;

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

}  // namespace weft
