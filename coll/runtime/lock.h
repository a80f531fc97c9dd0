// The mutex of a core, and its lock. Tasks, Failures, Links, GroupTable and Waiting share this one
// mutex. These classes do not know what the mutex guards.
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

// A mutex whose holder sees that other threads want it: a thread that polls for long lets them in.
// Every call takes it, mostly as the only thread: it costs an exchange each way, inline, where
// std::mutex costs some fifty instructions.
class FairMutex {
 public:
  // clang cannot see that the bodies of these three do what their annotations say.
  void lock() WEFT_ACQUIRE(core_held) WEFT_NO_THREAD_SAFETY_ANALYSIS {
    if (!try_lock()) [[unlikely]]
      lock_later();
  }
  bool try_lock() WEFT_TRY_ACQUIRE(true, core_held) WEFT_NO_THREAD_SAFETY_ANALYSIS {
    int free = 0;
    return held_.compare_exchange_strong(free, 1);
  }
  // A thread counts itself in `wanted_` before it looks at `held_`, and this one looks the other
  // way round: either that thread finds the mutex free, or this one finds that it waits.
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
  std::atomic<int> held_{0};  // an int, which the kernel waits for directly
  std::atomic<int> wanted_{0};
};

// Holds a core's mutex from its construction to its end; std::condition_variable_any waits on it.
class WEFT_SCOPED_CAPABILITY CoreLock : private UnannotatedLock<FairMutex> {
 public:
  explicit CoreLock(FairMutex& mutex) WEFT_ACQUIRE(core_held) : UnannotatedLock(mutex) {}
  // Of a mutex that is held already.
  CoreLock(FairMutex& mutex, std::adopt_lock_t held) WEFT_REQUIRES(core_held)
      : UnannotatedLock(mutex, held) {}
  ~CoreLock() WEFT_RELEASE() {}
  void unlock() WEFT_RELEASE() { UnannotatedLock::unlock(); }
  void lock() WEFT_ACQUIRE() { UnannotatedLock::lock(); }
  using UnannotatedLock::without;
};

}  // namespace weft
