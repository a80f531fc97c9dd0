// Yields the core with Linux system calls.
#include "topo/base/yield.h"

#include <sched.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cstdint>

namespace weft {
namespace {

constexpr std::uint64_t kSlice = 100'000;  // ns; the kernel's own lower limit

// As in linux/sched/types.h, which conflicts with some C libraries.
struct SchedAttributes {
  std::uint32_t size = sizeof(SchedAttributes);
  std::uint32_t policy = 0;
  std::uint64_t flags = 0;
  std::int32_t nice = 0;
  std::uint32_t priority = 0;
  std::uint64_t runtime = 0, deadline = 0, period = 0;
};

void ask_for_short_slices() {
  SchedAttributes a;
  if (syscall(SYS_sched_getattr, 0, &a, sizeof a, 0) != 0) return;
  // Kernels without custom slices for SCHED_OTHER report 0 and would ignore the request.
  if (a.policy != SCHED_OTHER || a.runtime <= kSlice) return;
  a.runtime = kSlice;
  syscall(SYS_sched_setattr, 0, &a, 0);
}

}  // namespace

void yield_core() {
  thread_local bool asked = false;
  if (!asked) {
    asked = true;
    ask_for_short_slices();
  }
  sched_yield();
}

}  // namespace weft
