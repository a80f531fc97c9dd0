// A mutex and its lock, annotated so that clang proves at compile time (-Wthread-safety) which data
// a mutex guards and which functions require it. No effect with other compilers. Macros:
// https://clang.llvm.org/docs/ThreadSafetyAnalysis.html.
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

// The common part of the locks, whose annotations depend on the mutex type.
template <class M>
class UnannotatedLock {
 public:
  explicit UnannotatedLock(M& mutex) WEFT_NO_THREAD_SAFETY_ANALYSIS : mutex_(mutex) {
    mutex_.lock();
  }
  UnannotatedLock(M& mutex, std::adopt_lock_t) : mutex_(mutex) {}
  ~UnannotatedLock() WEFT_NO_THREAD_SAFETY_ANALYSIS {
    if (held_) mutex_.unlock();
  }
  UnannotatedLock(const UnannotatedLock&) = delete;
  UnannotatedLock& operator=(const UnannotatedLock&) = delete;
  void unlock() WEFT_NO_THREAD_SAFETY_ANALYSIS {
    held_ = false;
    mutex_.unlock();
  }
  void lock() WEFT_NO_THREAD_SAFETY_ANALYSIS {
    mutex_.lock();
    held_ = true;
  }
  // Releases the mutex while `f` runs, and acquires it again also if `f` throws. For functions that
  // get the lock as an argument: clang assumes that the mutex is held, except in `f`.
  template <class F>
  void without(F f) {
    struct Again {
      UnannotatedLock& lock;
      ~Again() { lock.lock(); }
    };
    unlock();
    const Again again{*this};
    f();
  }

 private:
  M& mutex_;
  bool held_ = true;
};

// Holds a mutex from construction to destruction; unlock() and lock() release and reacquire it in
// between. std::condition_variable_any waits on it.
class WEFT_SCOPED_CAPABILITY MutexLock : private UnannotatedLock<Mutex> {
 public:
  explicit MutexLock(Mutex& mutex) WEFT_ACQUIRE(mutex) : UnannotatedLock(mutex) {}
  // Takes over a mutex that is already locked.
  MutexLock(Mutex& mutex, std::adopt_lock_t held) WEFT_REQUIRES(mutex)
      : UnannotatedLock(mutex, held) {}
  ~MutexLock() WEFT_RELEASE() {}
  void unlock() WEFT_RELEASE() { UnannotatedLock::unlock(); }
  void lock() WEFT_ACQUIRE() { UnannotatedLock::lock(); }
  using UnannotatedLock::without;
};

}  // namespace weft
