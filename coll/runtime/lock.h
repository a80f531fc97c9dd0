// The mutex of a core, and its lock. Tasks, Failures, Links, GroupTable and Waiting share this one
// mutex. These classes are independent of what the mutex guards.
#pragma once

#include <atomic>
#include <mutex>

#include "topo/base/mutex.h"

namespace weft {

// "This thread holds the mutex of its core." Annotations name this capability and not the mutex,
// as clang cannot see that `core.mutex` and `task->group->core->mutex` are the same object. A
// function works on one core.
class WEFT_CAPABILITY("mutex") CoreHeld {};
inline constexpr CoreHeld core_held;

// A mutex whose holder can detect that other threads wait for it, so that a polling thread can
// yield to them. Every call takes it, mostly uncontended: that costs one inline exchange each way,
// where std::mutex costs about fifty instructions.
class FairMutex {
 public:
  // clang cannot verify the annotations of these three functions.
  void lock() WEFT_ACQUIRE(core_held) WEFT_NO_THREAD_SAFETY_ANALYSIS {
    if (!try_lock()) [[unlikely]]
      lock_later();
  }
  bool try_lock() WEFT_TRY_ACQUIRE(true, core_held) WEFT_NO_THREAD_SAFETY_ANALYSIS {
    int free = 0;
    return held_.compare_exchange_strong(free, 1);
  }
  // A waiter increments `wanted_` before it reads `held_`; unlock() accesses them in the opposite
  // order. So either the waiter finds the mutex free, or unlock() finds the waiter.
  void unlock() WEFT_RELEASE(core_held) WEFT_NO_THREAD_SAFETY_ANALYSIS {
    held_.exchange(0);
    if (wanted_.load() > 0) [[unlikely]]
      held_.notify_one();
  }
  bool wanted() const { return wanted_.load(std::memory_order_relaxed) > 0; }

 private:
  void lock_later() WEFT_NO_THREAD_SAFETY_ANALYSIS {
    wanted_.fetch_add(1);
    while (!try_lock()) held_.wait(1);
    wanted_.fetch_sub(1);
  }
  std::atomic<int> held_{0};  // an int, so that wait() is a plain futex
  std::atomic<int> wanted_{0};
};

// Holds a core's mutex from its construction to its end; std::condition_variable_any waits on it.
class WEFT_SCOPED_CAPABILITY CoreLock : private UnannotatedLock<FairMutex> {
 public:
  explicit CoreLock(FairMutex& mutex) WEFT_ACQUIRE(core_held) : UnannotatedLock(mutex) {}
  // Adopts a mutex that this thread holds already.
  CoreLock(FairMutex& mutex, std::adopt_lock_t held) WEFT_REQUIRES(core_held)
      : UnannotatedLock(mutex, held) {}
  ~CoreLock() WEFT_RELEASE() {}
  void unlock() WEFT_RELEASE() { UnannotatedLock::unlock(); }
  void lock() WEFT_ACQUIRE() { UnannotatedLock::lock(); }
  using UnannotatedLock::without;
};

}  // namespace weft
