// Threads that the library starts inside the user's program.
#pragma once

#include <sched.h>
#include <signal.h>

#include <functional>
#include <thread>
#include <vector>

namespace weft {

// Blocks all signals of the calling thread while the object lives. Threads that the calling thread
// starts meanwhile keep all signals blocked for ever: the program's handlers run in the program's
// own threads, and no signal interrupts a system call of the library's threads.
class SignalsBlocked {
 public:
  SignalsBlocked();
  ~SignalsBlocked();
  SignalsBlocked(const SignalsBlocked&) = delete;
  SignalsBlocked& operator=(const SignalsBlocked&) = delete;

 private:
  sigset_t before_;
};

// The calling thread, and the threads that it starts meanwhile, run on these CPUs while the object
// lives, whatever the launcher has bound the process to, but within the cpuset of its cgroup. Where
// that allows none of them, or there are none, nothing changes.
class RunsOn {
 public:
  explicit RunsOn(const std::vector<int>& cpus) noexcept;
  ~RunsOn();
  RunsOn(const RunsOn&) = delete;
  RunsOn& operator=(const RunsOn&) = delete;

 private:
  cpu_set_t before_;
  bool moved_ = false;
};

// Starts a thread with all signals blocked. `what` names the thread in errors, as in "the thread of
// the control plane". Throws Error when the system refuses another thread.
std::thread start_thread(const char* what, std::function<void()> body);

}  // namespace weft
