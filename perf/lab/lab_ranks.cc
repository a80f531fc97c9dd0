// Starts and ends the processes of a lab, and forwards signals. Does not depend on hosts and rails.
#include "perf/lab/lab_ranks.h"

#include <fcntl.h>
#include <fmt/core.h>
#include <sched.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <optional>

#include "topo/base/status.h"
#include "transport/launch/closed_pipe.h"

namespace weft {
namespace {

using Clock = std::chrono::steady_clock;

// Time between SIGTERM and SIGKILL, for a rank's last messages.
constexpr std::chrono::seconds kLastWords{5};

void bind_to_core(int number) {
  cpu_set_t all, one;
  if (number < 0 || sched_getaffinity(0, sizeof all, &all) != 0) return;
  int skip = number % CPU_COUNT(&all);
  CPU_ZERO(&one);
  for (int c = 0; c < CPU_SETSIZE; ++c)
    if (CPU_ISSET(c, &all) && skip-- == 0) CPU_SET(c, &one);
  sched_setaffinity(0, sizeof one, &one);  // best effort: only performance depends on it
}

sigset_t guarded_signals() {
  sigset_t set;
  sigemptyset(&set);
  for (const int signal : {SIGINT, SIGTERM, SIGHUP, SIGCHLD, SIGPIPE}) sigaddset(&set, signal);
  return set;
}

void replace_fd(int from, int to) {
  if (from < 0 || dup2(from, to) < 0) {
    std::fprintf(stderr, "weft: file descriptor %d: %s\n", to, std::strerror(errno));
    _exit(127);
  }
}

// The child gets its own process group: a signal to the group also reaches its children, and the
// terminal's Ctrl-C reaches only weft, which forwards it. `stdout_fd` -1 inherits standard output;
// `death_signal` 0 lets the child outlive this process.
pid_t spawn(const RankCommand& command, int stdout_fd, int death_signal) {
  const pid_t parent = getpid();
  const pid_t pid = fork();
  if (pid < 0) throw Error(fmt::format("fork: {}", std::strerror(errno)));
  if (pid > 0) {
    setpgid(pid, pid);  // in parent and child: either may run first
    return pid;
  }
  setpgid(0, 0);
  const sigset_t set = guarded_signals();
  sigprocmask(SIG_UNBLOCK, &set, nullptr);
  if (death_signal != 0) {
    setenv(kLauncherVariable, std::to_string(parent).c_str(), 1);
    prctl(PR_SET_PDEATHSIG, death_signal);
    if (getppid() != parent) _exit(127);
  }
  replace_fd(open("/dev/null", O_RDONLY), STDIN_FILENO);
  if (stdout_fd >= 0) replace_fd(stdout_fd, STDOUT_FILENO);
  for (const auto& [name, value] : command.environment) setenv(name.c_str(), value.c_str(), 1);
  bind_to_core(command.core);
  std::vector<char*> argv;
  for (const std::string& word : command.argv) argv.push_back(const_cast<char*>(word.c_str()));
  argv.push_back(nullptr);
  execvp(argv[0], argv.data());
  std::fprintf(stderr, "weft: %s: %s\n", argv[0], std::strerror(errno));
  _exit(127);
}

int exit_code_of(int status) {
  return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

// Returns the next guarded signal, or 0 once the deadline has passed.
int next_signal(std::optional<Clock::time_point> deadline) {
  const sigset_t set = guarded_signals();
  for (;;) {
    int signal;
    if (!deadline) {
      signal = sigwaitinfo(&set, nullptr);
    } else {
      const auto left = std::max(Clock::duration::zero(), *deadline - Clock::now());
      const auto ns = std::chrono::duration_cast<std::chrono::nanoseconds>(left).count();
      const timespec wait{static_cast<time_t>(ns / 1'000'000'000),
                          static_cast<long>(ns % 1'000'000'000)};
      signal = sigtimedwait(&set, nullptr, &wait);
    }
    if (signal > 0) return signal;
    if (errno == EAGAIN) return 0;
    if (errno != EINTR) throw Error(fmt::format("sigtimedwait: {}", std::strerror(errno)));
  }
}

}  // namespace

SignalGuard::SignalGuard() {
  const sigset_t set = guarded_signals();
  sigprocmask(SIG_BLOCK, &set, nullptr);
}

SignalGuard::~SignalGuard() {
  const sigset_t set = guarded_signals();
  sigprocmask(SIG_UNBLOCK, &set, nullptr);
}

int run_helper(const std::vector<std::string>& argv, std::string* output) {
  int ends[2] = {-1, -1};
  if (output != nullptr && pipe2(ends, O_CLOEXEC) != 0) {
    throw Error(fmt::format("pipe: {}", std::strerror(errno)));
  }
  const pid_t pid = spawn({argv, {}}, ends[1], 0);
  if (output != nullptr) {
    close(ends[1]);
    std::array<char, 4096> bytes;
    for (;;) {
      const ssize_t n = read(ends[0], bytes.data(), bytes.size());
      if (n > 0) output->append(bytes.data(), static_cast<std::size_t>(n));
      if (n == 0 || (n < 0 && errno != EINTR)) break;
    }
    close(ends[0]);
  }
  int status = 0;
  while (waitpid(pid, &status, 0) < 0 && errno == EINTR) continue;
  return exit_code_of(status);
}

int run_ranks(const std::vector<RankCommand>& commands, std::chrono::milliseconds grace) {
  std::vector<pid_t> running;
  for (const RankCommand& command : commands) running.push_back(spawn(command, -1, SIGKILL));
  const auto send = [&running](int signal) {
    for (const pid_t pid : running) kill(-pid, signal);
  };
  int worst = 0;
  int stopped_by = 0;
  bool asked_to_end = false;
  std::optional<Clock::time_point> deadline;
  while (!running.empty()) {
    const int signal = next_signal(deadline);
    if (signal == SIGCHLD) {
      std::erase_if(running, [&](pid_t pid) {
        int status = 0;
        if (waitpid(pid, &status, WNOHANG) != pid) return false;
        // Ignore the status of ranks that the lab itself ended.
        if (!asked_to_end) worst = std::max(worst, exit_code_of(status));
        return true;
      });
      if (worst != 0 && !deadline && !running.empty()) deadline = Clock::now() + grace;
      continue;
    }
    const bool reader_gone = signal == SIGPIPE && output_closed();
    if (signal == SIGPIPE && !reader_gone) continue;
    if (signal != 0) stopped_by = signal;
    if (signal == 0 && !asked_to_end) {
      std::fprintf(stderr,
                   "weft: %zu ranks still run %lld s after the first failure: ending them\n",
                   running.size(), static_cast<long long>(grace.count()));
    }
    send(asked_to_end || reader_gone ? SIGKILL : signal != 0 ? signal : SIGTERM);
    asked_to_end = true;
    deadline = Clock::now() + kLastWords;
  }
  return stopped_by != 0 ? 128 + stopped_by : worst;
}

}  // namespace weft
