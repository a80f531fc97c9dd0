// Threads that the library starts inside the user's program.
#pragma once

#include <sched.h>
#include <signal.h>

#include <functional>
#include <thread>
#include <vector>

namespace weft {

// Blocks all signals of the calling thread for the lifetime of the object. Threads that it starts
// during this time keep all signals blocked: the program's handlers run in the program's own
// threads, and no signal interrupts a system call of the library's threads.
class SignalsBlocked {
 public:
  SignalsBlocked();
  ~SignalsBlocked();
  SignalsBlocked(const SignalsBlocked&) = delete;
  SignalsBlocked& operator=(const SignalsBlocked&) = delete;

 private:
  sigset_t before_;
};

// Binds the calling thread, and the threads that it starts, to these CPUs for the lifetime of the
// object, within the cgroup's cpuset but regardless of the launcher's binding. No effect if the
// cpuset permits none of them or `cpus` is empty.
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

// Starts a thread with all signals blocked. `what` is the name of the thread in errors, as in "the
// thread of the control plane". Throws Error if the system call fails.
std::thread start_thread(const char* what, std::function<void()> body);

}  // namespace weft
