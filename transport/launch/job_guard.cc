// The guard process: reads process groups from a socket and kills them when its parent ends.
#include "transport/launch/job_guard.h"

#include <signal.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <utility>
#include <vector>

namespace weft {

// Protocol: +pgid adds a process group that the guard kills when it ends, -pgid removes it.
void Guard::start() {
  // A socket instead of a pipe, since MSG_NOSIGNAL avoids SIGPIPE if the reader has exited.
  int ends[2];
  if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) != 0) fail_by_errno("socketpair");
  pipe_ = {File(ends[0]), File(ends[1])};
  pid_ = fork();
  if (pid_ < 0) fail_by_errno("fork");
  if (pid_ > 0) {
    pipe_.read.close();
    return;
  }
  setsid();  // the terminal's signals do not reach the guard
  sigset_t all;
  sigfillset(&all);
  sigprocmask(SIG_SETMASK, &all, nullptr);
  const int from = dup2(pipe_.read.get(), 0);
  // The guard must not keep this process's output open. A sandbox may forbid close_range().
  constexpr int kMostFiles = 4096;
  if (close_range(1, ~0U, 0) != 0)
    for (int fd = 1; fd < kMostFiles; ++fd) close(fd);
  std::vector<pid_t> groups;
  for (;;) {
    pid_t group = 0;
    const ssize_t got = ::read(from, &group, sizeof group);
    if (got < 0 && errno == EINTR) continue;
    if (got != sizeof group) break;
    if (group > 0) groups.push_back(group);
    if (group < 0) std::erase(groups, -group);
  }
  for (const pid_t group : groups) kill(-group, SIGKILL);
  _exit(0);
}

void Guard::tell(pid_t group) { (void)send(pipe_.write.get(), &group, sizeof group, MSG_NOSIGNAL); }

void Guard::end() {
  pipe_.write.close();
  if (pid_ <= 0) return;
  while (waitpid(pid_, nullptr, 0) < 0 && errno == EINTR) continue;
  pid_ = -1;
}

}  // namespace weft
