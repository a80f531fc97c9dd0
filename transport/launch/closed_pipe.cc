// The handler of SIGPIPE. Depends only on the launcher's process id.
#include "transport/launch/closed_pipe.h"

#include <poll.h>
#include <signal.h>
#include <time.h>
#include <unistd.h>

#include <cstdlib>

namespace weft {
namespace {

// Time that a rank waits for its launcher to kill it before the rank ends itself.
constexpr timespec kPatience{5, 0};

pid_t launcher = 0;

// The signal sent by raise() is pending until the handler returns, and then ends the process.
void end_rank(int signal_number) {
  if (launcher > 1 && getppid() == launcher && output_closed() &&
      kill(launcher, signal_number) == 0)
    nanosleep(&kPatience, nullptr);
  signal(signal_number, SIG_DFL);
  raise(signal_number);
}

}  // namespace

bool output_closed() noexcept {
  pollfd ends[] = {{STDOUT_FILENO, 0, 0}, {STDERR_FILENO, 0, 0}};
  return poll(ends, 2, 0) > 0 && ((ends[0].revents | ends[1].revents) & POLLERR) != 0;
}

void end_at_closed_pipe() noexcept {
  const char* parent = std::getenv(kLauncherVariable);
  launcher = parent != nullptr ? std::atoi(parent) : 0;
  struct sigaction action {};
  action.sa_handler = &end_rank;
  sigaction(SIGPIPE, &action, nullptr);
}

}  // namespace weft
