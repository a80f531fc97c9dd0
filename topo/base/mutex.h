// A mutex and its lock, annotated so that clang proves at compile time (-Wthread-safety) which data
// a mutex guards and which functions require it. No effect with other compilers. The macros are
// those of https://clang.llvm.org/docs/ThreadSafetyAnalysis.html.
#pragma once

#include <mutex>

#if defined(__clang__)
#define WEFT_ANNOTATION(x) __attribute__((x))
#else
#define WEFT_ANNOTATION(x)
#endif

#define WEFT_CAPABILITY(name) WEFT_ANNOTATION(capability(name))
#define WEFT_SCOPED_CAPABILITY WEFT_ANNOTATION(scoped_lockable)
#define WEFT_GUARDED_BY(mutex) WEFT_ANNOTATION(guarded_by(mutex))
#define WEFT_PT_GUARDED_BY(mutex) WEFT_ANNOTATION(pt_guarded_by(mutex))
#define WEFT_REQUIRES(...) WEFT_ANNOTATION(requires_capability(__VA_ARGS__))
#define WEFT_EXCLUDES(...) WEFT_ANNOTATION(locks_excluded(__VA_ARGS__))
#define WEFT_ACQUIRE(...) WEFT_ANNOTATION(acquire_capability(__VA_ARGS__))
#define WEFT_RELEASE(...) WEFT_ANNOTATION(release_capability(__VA_ARGS__))
#define WEFT_TRY_ACQUIRE(...) WEFT_ANNOTATION(try_acquire_capability(__VA_ARGS__))
#define WEFT_ASSERT_CAPABILITY(mutex) WEFT_ANNOTATION(assert_capability(mutex))
#define WEFT_RETURN_CAPABILITY(mutex) WEFT_ANNOTATION(lock_returned(mutex))
#define WEFT_NO_THREAD_SAFETY_ANALYSIS WEFT_ANNOTATION(no_thread_safety_analysis)

namespace weft {

// std::mutex, annotated for clang's analysis.
class WEFT_CAPABILITY("mutex") Mutex {
 public:
  void lock() WEFT_ACQUIRE() { mutex_.lock(); }
  void unlock() WEFT_RELEASE() { mutex_.unlock(); }
  bool try_lock() WEFT_TRY_ACQUIRE(true) { return mutex_.try_lock(); }

 private:
  std::mutex mutex_;
};

// Holds a mutex while it lives, except between unlock() and lock(). Usable with
// std::condition_variable_any. M: Mutex, or another class with its capability.
template <class M>
class WEFT_SCOPED_CAPABILITY BasicMutexLock {
 public:
  explicit BasicMutexLock(M& mutex) WEFT_ACQUIRE(mutex) : mutex_(mutex) { mutex_.lock(); }
  // Adopts a mutex that is already held.
  BasicMutexLock(M& mutex, std::adopt_lock_t) WEFT_REQUIRES(mutex) : mutex_(mutex) {}
  ~BasicMutexLock() WEFT_RELEASE() {
    if (held_) mutex_.unlock();
  }
  BasicMutexLock(const BasicMutexLock&) = delete;
  BasicMutexLock& operator=(const BasicMutexLock&) = delete;
  void unlock() WEFT_RELEASE() {
    held_ = false;
    mutex_.unlock();
  }
  void lock() WEFT_ACQUIRE() {
    mutex_.lock();
    held_ = true;
  }
  // Runs `f` with the mutex unlocked. For functions that get the lock from its holder: clang then
  // treats the mutex as held throughout, except in `f`.
  template <class F>
  void without(F f) WEFT_NO_THREAD_SAFETY_ANALYSIS {
    unlock();
    f();
    lock();
  }

 private:
  M& mutex_;
  bool held_ = true;
};

using MutexLock = BasicMutexLock<Mutex>;

}  // namespace weft
