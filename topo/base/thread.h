// Threads that the library starts inside the user's program.
#pragma once

#include <sched.h>
#include <signal.h>

#include <functional>
#include <thread>
#include <vector>

namespace weft {

// Blocks all signals of the calling thread while the object lives. Threads that it starts meanwhile
// keep all signals blocked: the program's handlers run in its own threads, and no signal interrupts
// a system call of the library's threads.
class SignalsBlocked {
 public:
  SignalsBlocked();
  ~SignalsBlocked();
  SignalsBlocked(const SignalsBlocked&) = delete;
  SignalsBlocked& operator=(const SignalsBlocked&) = delete;

 private:
  sigset_t before_;
};

// Binds the calling thread, and the threads that it starts meanwhile, to these CPUs while the
// object lives, within the cgroup's cpuset but regardless of the launcher's binding. No effect if
// the cpuset allows none of them or `cpus` is empty.
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
// the control plane". Throws Error if the system refuses.
std::thread start_thread(const char* what, std::function<void()> body);

}  // namespace weft
