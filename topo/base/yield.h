// Yields a waiting thread's core to other threads.
#pragma once

namespace weft {

// Calls sched_yield(). A thread's first call also requests the kernel's shortest time slices (0.1
// ms; sched_setattr(2), Linux 6.12 and later, no privilege needed; no effect on other kernels). The
// thread's share of the core is unchanged, but on a shared core it resumes 0.1 ms after its wait
// ends instead of after several slices of 3 ms. Does not change threads with a policy other than
// SCHED_OTHER or with slices this short. Thread-safe.
void yield_core();

// Spin-loop hint to the processor.
inline void relax() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("yield");
#endif
}

}  // namespace weft
