// Threads of the library inside somebody else's program.
#pragma once

#include <signal.h>

#include <functional>
#include <thread>

namespace weft {

// As long as it lives, no signal comes to this thread, nor ever to those that it makes meanwhile:
// signals are for the program's own threads. A handler of its does not run in these, and no signal
// interrupts what they call.
class SignalsBlocked {
 public:
  SignalsBlocked();
  ~SignalsBlocked();
  SignalsBlocked(const SignalsBlocked&) = delete;
  SignalsBlocked& operator=(const SignalsBlocked&) = delete;

 private:
  sigset_t before_;
};

// A thread that no signal comes to. `what` names it, as in "the thread of the control plane".
// Throws Error where the system has no more threads to give.
std::thread start_thread(const char* what, std::function<void()> body);

}  // namespace weft
