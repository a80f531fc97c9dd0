// Starts threads with all signals blocked, and sets their CPUs.
#include "topo/base/thread.h"

#include <fmt/format.h>

#include <system_error>
#include <utility>

#include "topo/base/status.h"

namespace weft {

SignalsBlocked::SignalsBlocked() {
  sigset_t all;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before_);
}

SignalsBlocked::~SignalsBlocked() { pthread_sigmask(SIG_SETMASK, &before_, nullptr); }

RunsOn::RunsOn(const std::vector<int>& cpus) noexcept {
  cpu_set_t wanted;
  CPU_ZERO(&wanted);
  for (const int cpu : cpus)
    if (cpu >= 0 && cpu < CPU_SETSIZE) CPU_SET(cpu, &wanted);
  // The kernel ignores CPUs outside the cpuset, and fails if none remains.
  moved_ = CPU_COUNT(&wanted) > 0 && sched_getaffinity(0, sizeof before_, &before_) == 0 &&
           sched_setaffinity(0, sizeof wanted, &wanted) == 0;
}

RunsOn::~RunsOn() {
  if (moved_) sched_setaffinity(0, sizeof before_, &before_);
}

std::thread start_thread(const char* what, std::function<void()> body) {
  const SignalsBlocked blocked;
  try {
    return std::thread(std::move(body));
  } catch (const std::system_error& e) {
    throw Error(fmt::format(
        "cannot start {}: {}; raise the limit of processes and threads (`ulimit -u`, TasksMax=, "
        "pids.max of the control group)",
        what, e.code().message()));
  }
}

}  // namespace weft
