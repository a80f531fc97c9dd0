// The handler of SIGPIPE. Knows only the launcher's process id.
#include "transport/launch/closed_pipe.h"

#include <poll.h>
#include <signal.h>
#include <time.h>
#include <unistd.h>

#include <cstdlib>

namespace weft {
namespace {

// How long a rank waits for its launcher to kill it before it ends by itself.
constexpr timespec kPatience{5, 0};

pid_t launcher = 0;

// raise() leaves the signal pending; it ends the process when the handler returns.
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
