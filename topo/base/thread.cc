// Starts threads with all signals blocked. Knows nothing of what the threads do.
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
