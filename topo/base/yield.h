// How a waiting thread gives its core to other threads.
#pragma once

namespace weft {

// Calls sched_yield(). A thread's first call also asks the kernel for its shortest time slices
// (0.1 ms; sched_setattr(2), Linux 6.12 and later, no privilege needed; no effect elsewhere). The
// thread's share of the core stays the same, but on a core that other threads use, it runs 0.1 ms
// after its wait is over and not after several slices of 3 ms. The call changes no thread whose
// policy is not SCHED_OTHER or whose slices are that short already. Thread-safe.
void yield_core();

// Tells the processor that this is a polling loop.
inline void relax() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("yield");
#endif
}

}  // namespace weft
