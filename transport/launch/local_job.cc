// Starts and monitors the processes of a local job, and ensures that no process remains.
//
// Every rank leads a process group, so that its children end with it. PR_SET_PDEATHSIG kills a rank
// when its launcher dies; the guard kills ranks that run below a shell.
#include "transport/launch/local_job.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <poll.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/signalfd.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <thread>
#include <utility>

#include "topo/base/exit_code.h"
#include "transport/control/hmac.h"
#include "transport/control/socket.h"
#include "transport/job/job_environment.h"
#include "transport/launch/bind_cores.h"
#include "transport/launch/closed_pipe.h"
#include "transport/launch/job_guard.h"
#include "transport/launch/job_streams.h"
#include "transport/launch/process.h"

namespace weft {
namespace {

using namespace std::chrono_literals;
using Clock = std::chrono::steady_clock;

constexpr int kRanksMax = 4096;
constexpr int kRailsMax = 64;
constexpr auto kTermTime = 2000ms;  // between SIGTERM and SIGKILL
// Time from the close of a process's sockets to its exit, which takes seconds on a busy machine or
// if the process has much memory to free; and the polling interval.
constexpr auto kDyingTime = 10000ms, kDyingLook = 2ms;

// Opens rank 0's listening socket, which it inherits, so that the port is known before any rank
// starts.
File listen_on_loopback(std::string& root) {
  const Fd fd = listen_at("127.0.0.1");
  root = fmt::format("127.0.0.1:{}", port_of(fd.get()));
  return File(fcntl(fd.get(), F_DUPFD_CLOEXEC, 0));
}

struct Process {
  pid_t pid = -1;
  bool running = false;
};

class LocalProcesses {
 public:
  LocalProcesses(std::function<int(Rank)> child, const LaunchOptions& options)
      : child_(std::move(child)), options_(options), processes_(count(options)) {}

  ~LocalProcesses() {
    if (running_ > 0) kill_all(SIGKILL);
    for (Process& p : processes_)
      while (p.running && waitpid(p.pid, nullptr, 0) < 0 && errno == EINTR) continue;
    guard_.end();
    if (signals_.get() >= 0) sigprocmask(SIG_SETMASK, &mask_before_, nullptr);
  }

  int run() {
    sigset_t watched;
    sigemptyset(&watched);
    for (const int s : {SIGCHLD, SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGTSTP, SIGPIPE})
      sigaddset(&watched, s);
    sigprocmask(SIG_BLOCK, &watched, &mask_before_);
    signals_ = File(signalfd(-1, &watched, SFD_CLOEXEC | SFD_NONBLOCK));
    if (signals_.get() < 0) fail_by_errno("signalfd");
    start();
    while (running_ > 0 || !streams_.empty()) {
      wait();
      escalate(Clock::now());
    }
    return exit_code_ == 0 && incomplete_ ? kExitError : exit_code_;
  }

 private:
  static std::size_t count(const LaunchOptions& o) {
    if (o.ranks < 1 || o.ranks > kRanksMax)
      throw Error(fmt::format("-N {}: a local job has 1 to {} ranks", o.ranks, kRanksMax));
    if (!o.host_ids.empty() && o.host_ids.size() != static_cast<std::size_t>(o.ranks))
      throw Error(
          fmt::format("--host-ids names {} hosts, but there are {} ranks: name one per rank",
                      o.host_ids.size(), o.ranks));
    if (const auto empty = std::ranges::find(o.host_ids, ""); empty != o.host_ids.end())
      throw Error(fmt::format("--host-ids names no host for rank {}: as in a,a,b,b",
                              empty - o.host_ids.begin()));
    if (o.hosts < 1 || o.hosts > o.ranks)
      throw Error(fmt::format("--hosts {}: {} rank{} can be spread over 1 to {} hosts", o.hosts,
                              o.ranks, o.ranks == 1 ? "" : "s", o.ranks));
    if (o.rails < 1 || o.rails > kRailsMax)
      throw Error(fmt::format("--rails {}: a host has 1 to {} rails", o.rails, kRailsMax));
    return static_cast<std::size_t>(o.ranks);
  }

  std::vector<std::string> host_ids() const {
    std::vector<std::string> ids = options_.host_ids;
    if (!ids.empty() || options_.hosts == 1) return ids;
    for (int r = 0; r < options_.ranks; ++r)
      ids.push_back(fmt::format("host{}", static_cast<long>(r) * options_.hosts / options_.ranks));
    return ids;
  }

  void start() {
    listener_ = listen_on_loopback(root_);
    guard_.start();
    (void)getrlimit(RLIMIT_NOFILE, &files_before_);
    if (options_.tag) (void)allow_files(2 * options_.ranks);  // for the ranks' pipes
    for (Rank r = 0; r < options_.ranks; ++r) start_rank(r, false);
    listener_.close();
  }

  void start_rank(Rank r, bool replaces) {
    const auto of = static_cast<std::size_t>(r);
    const std::string id = host_ids_.empty() ? "" : host_ids_[of];
    const auto local_rank =
        host_ids_.empty() ? r : std::count(host_ids_.begin(), host_ids_.begin() + r, id);
    std::fflush(nullptr);  // otherwise the child would print these buffers again
    const pid_t launcher = getpid();
    Pipe out, err;
    if (options_.tag) {
      out = make_pipe();
      err = make_pipe();
    }
    const pid_t pid = fork();
    if (pid < 0) fail_by_errno("fork");
    if (pid == 0) {
      become_rank(r, launcher, listener_.get(), out.write.get(), err.write.get());
      set("WEFT_RANK", r);
      set("WEFT_SIZE", options_.ranks);
      set("WEFT_LOCAL_RANK", local_rank);
      set("WEFT_ROOT", root_);
      set("WEFT_SECRET", secret_);
      set(kLauncherVariable, launcher);
      if (replaces) set(kReplaces, 1);
      if (!id.empty()) set("WEFT_HOST_ID", id);
      if (options_.hosts > 1 || options_.rails > 1) set("WEFT_EMULATE_RAILS", options_.rails);
      if (options_.timeout.count() > 0) set("WEFT_TIMEOUT_MS", options_.timeout.count());
      int code = 1;
      try {
        code = child_(r);
      } catch (const std::exception& e) {
        std::fprintf(stderr, "%s\n", e.what());
      }
      std::fflush(nullptr);
      _exit(code);
    }
    setpgid(pid, pid);  // parent and child both set it, since either may run first
    processes_[of] = {pid, true};
    ++running_;
    guard_.add(pid);
    if (options_.tag) {
      const std::string tag = fmt::format("[{}] ", r);
      streams_.push_back({std::move(out.read), STDOUT_FILENO, tag, {}});
      streams_.push_back({std::move(err.read), STDERR_FILENO, tag, {}});
    }
  }

  static void set(const char* variable, const auto& value) {
    setenv(variable, fmt::format("{}", value).c_str(), 1);
  }

  // Prepares the child before its program runs.
  void become_rank(Rank r, pid_t launcher, int listener, int out, int err) {
    setpgid(0, 0);
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != launcher) _exit(1);  // the launcher died before prctl()
    sigprocmask(SIG_SETMASK, &mask_before_, nullptr);
    (void)setrlimit(RLIMIT_NOFILE, &files_before_);
    if (options_.bind) bind_to_share(r, options_.ranks);
    if (out >= 0) dup2(out, STDOUT_FILENO);
    if (err >= 0) dup2(err, STDERR_FILENO);
    // A background process group that reads the terminal would be stopped.
    if (r != 0 || isatty(STDIN_FILENO)) {
      const int null = open("/dev/null", O_RDONLY | O_CLOEXEC);
      if (null >= 0) dup2(null, STDIN_FILENO);
    }
    unsetenv("WEFT_ROOT_FD");
    if (r == 0 && listener >= 0) {
      fcntl(listener, F_SETFD, 0);
      set("WEFT_ROOT_FD", listener);
    }
  }

  void wait() {
    std::vector<pollfd> polled{{signals_.get(), POLLIN, 0}};
    for (const Stream& s : streams_) polled.push_back({s.from.get(), POLLIN, 0});
    int wait_ms = -1;
    if (next_step_ != Clock::time_point::max()) {
      const auto left = std::chrono::ceil<std::chrono::milliseconds>(next_step_ - Clock::now());
      wait_ms = static_cast<int>(std::clamp<std::int64_t>(left.count(), 0, 60000));
    }
    if (!failures_.empty()) wait_ms = kDyingLook.count();
    if (poll(polled.data(), polled.size(), wait_ms) < 0) return;
    for (std::size_t i = streams_.size(); i-- > 0;) {
      if (polled[i + 1].revents == 0) continue;
      const bool more = pass_lines(streams_[i]);
      if (streams_[i].error == EPIPE) return reader_gone();
      if (streams_[i].error != 0 && !std::exchange(incomplete_, true))
        say(fmt::format("{}: standard {} cannot be written: {}: what it got is not complete",
                        options_.name, streams_[i].to == STDOUT_FILENO ? "output" : "error",
                        std::strerror(streams_[i].error)));
      if (!more) streams_.erase(streams_.begin() + static_cast<std::ptrdiff_t>(i));
    }
    signalfd_siginfo info;
    while (::read(signals_.get(), &info, sizeof info) == sizeof info) {
      if (info.ssi_signo == SIGTSTP) {
        pause_all();
      } else if (info.ssi_signo == SIGPIPE) {
        if (output_closed()) reader_gone();
      } else if (info.ssi_signo != SIGCHLD) {
        interrupted(static_cast<int>(info.ssi_signo));
      }
    }
    reap();
  }

  void collect() {
    for (std::size_t r = 0; r < processes_.size(); ++r) {
      Process& p = processes_[r];
      int status = 0;
      if (!p.running || waitpid(p.pid, &status, WNOHANG) != p.pid) continue;
      p.running = false;
      --running_;
      if (code_of(status) == kExitClosedPipe && output_closed()) reader_gone();
      if (options_.outlives_killed && WIFSIGNALED(status) && exit_code_ == 0 && running_ > 0) {
        const bool replaced = replaced_ < options_.replacements;
        say(fmt::format("{}: rank {} {}; {} still running{}", options_.name, r,
                        how_it_ended(status), running_, replaced ? ", and a new one" : ""));
        if (!replaced) continue;
        ++replaced_;
        (void)kill(-p.pid, SIGKILL);  // its children
        guard_.forget(p.pid);
        start_rank(static_cast<Rank>(r), true);
        continue;
      }
      if (code_of(status) == 0 || exit_code_ != 0) continue;
      if (failures_.empty()) judge_at_ = Clock::now() + kDyingTime;
      failures_.push_back({static_cast<Rank>(r), status});
    }
  }

  void reap() {
    collect();
    // A rank may end before the rank whose death caused its end.
    const auto is_dying = [](const Process& p) { return p.running && dying(p.pid); };
    if (!failures_.empty() &&
        (Clock::now() >= judge_at_ || std::ranges::none_of(processes_, is_dying))) {
      // Among several failures, a killed rank is more likely the cause.
      std::stable_partition(failures_.begin(), failures_.end(),
                            [](const auto& f) { return WIFSIGNALED(f.second); });
      if (exit_code_ == 0) first_failure(failures_[0].first, failures_[0].second);
      failures_.clear();
    }
    if (running_ == 0) {
      // Kills processes that the ranks started and did not wait for.
      kill_all(SIGKILL);
      for (const Process& p : processes_) guard_.forget(p.pid);
      if (next_step_ == Clock::time_point::max()) next_step_ = Clock::now() + kTermTime;
    }
  }

  void first_failure(Rank rank, int status) {
    exit_code_ = code_of(status);
    if (exit_code_ > 128 && options_.killed_code > 0) exit_code_ = options_.killed_code;
    std::string text = fmt::format("{}: rank {} {}", options_.name, rank, how_it_ended(status));
    if (running_ > 0)
      text += fmt::format("; {} still running {} {} ms to end", running_,
                          running_ == 1 ? "gets" : "get", options_.grace.count());
    if (WIFSIGNALED(status) || !options_.ranks_say_why) say(text);
    if (next_signal_ == 0) {
      next_signal_ = SIGTERM;
      next_step_ = Clock::now() + options_.grace;
    }
  }

  // The reader of the ranks' or this process's output has exited: ends all ranks at once, without
  // messages.
  void reader_gone() {
    exit_code_ = kExitClosedPipe;
    failures_.clear();
    end_all(SIGKILL);
    streams_.clear();
  }

  // Handles Ctrl-C and similar signals: forwards the signal; at the second signal kills the ranks
  // immediately.
  void interrupted(int signal) {
    if (exit_code_ == 0) exit_code_ = 128 + signal;
    if (std::exchange(interrupted_, true)) {
      kill_all(SIGKILL);
      return;
    }
    end_all(signal);
    next_signal_ = SIGTERM;
    next_step_ = Clock::now() + options_.grace;
  }

  // Ctrl-Z stops the ranks together with this process, and `fg` continues them.
  void pause_all() {
    kill_all(SIGSTOP);
    (void)raise(SIGSTOP);
    kill_all(SIGCONT);
  }

  void escalate(Clock::time_point now) {
    if (now < next_step_) return;
    // Without ranks, only pipes remain open, in processes that cannot be killed.
    if (running_ == 0) return streams_.clear();
    std::vector<Rank> late;
    for (std::size_t r = 0; r < processes_.size(); ++r)
      if (processes_[r].running) late.push_back(static_cast<Rank>(r));
    if (next_signal_ == SIGTERM)
      say(fmt::format("{}: rank{} {} did not end in {} ms: terminated", options_.name,
                      late.size() == 1 ? "" : "s", fmt::join(late, ", "), options_.grace.count()));
    end_all(next_signal_);
    next_signal_ = SIGKILL;
    next_step_ = now + kTermTime;
  }

  // Signals all ranks at once, since a running rank would detect that others died and report a
  // failure. Stopped processes must be continued so that they can end.
  void end_all(int signal) {
    kill_all(SIGSTOP);
    kill_all(signal);
    kill_all(SIGCONT);
  }

  void kill_all(int signal) {
    for (const Process& p : processes_)
      if (p.pid > 0 && (p.running || running_ == 0)) (void)kill(-p.pid, signal);
  }

  static void say(const std::string& text) { (void)write_all(STDERR_FILENO, text + "\n"); }

  const std::function<int(Rank)> child_;
  const LaunchOptions& options_;
  std::vector<Process> processes_;  // by rank
  std::vector<Stream> streams_;
  const std::vector<std::string> host_ids_ = host_ids();  // by rank; empty: one host
  std::string root_;
  const std::string secret_ = hex(random_bytes(kMacBytes));
  File listener_;
  int running_ = 0, replaced_ = 0;
  int exit_code_ = 0;
  std::vector<std::pair<Rank, int>> failures_;  // not attributed yet: other ranks will end soon
  Clock::time_point judge_at_{};
  bool interrupted_ = false;
  bool incomplete_ = false;  // some output of the ranks was lost
  rlimit files_before_{};
  int next_signal_ = 0;
  Clock::time_point next_step_ = Clock::time_point::max();
  File signals_;
  sigset_t mask_before_{};
  Guard guard_;
};

int run_program(const std::string& path, const std::vector<std::string>& argv,
                const LaunchOptions& options) {
  const auto child = [&](Rank) {
    std::vector<char*> raw;
    for (const std::string& a : argv) raw.push_back(const_cast<char*>(a.c_str()));
    raw.push_back(nullptr);
    execv(path.c_str(), raw.data());
    std::fprintf(stderr, "%s: cannot start \"%s\": %s\n", options.name.c_str(), argv[0].c_str(),
                 std::strerror(errno));
    return kExitNotExecutable;
  };
  return LocalProcesses(child, options).run();
}

}  // namespace

int run_local_job(const std::vector<std::string>& argv, const LaunchOptions& options) {
  if (argv.empty()) throw Error(fmt::format("{}: no program to run", options.name));
  int error = 0;
  const std::string path = find_program(argv[0], error);
  if (path.empty()) {
    std::fprintf(stderr, "%s: cannot start \"%s\": %s\n", options.name.c_str(), argv[0].c_str(),
                 error == EACCES ? "it is not executable" : "no such program");
    return error == EACCES ? kExitNotExecutable : kExitNotFound;
  }
  return run_program(path, argv, options);
}

int run_local_job(const std::function<int(Rank)>& body, const LaunchOptions& options) {
  return LocalProcesses(body, options).run();
}

bool launched() { return is_set("WEFT_RANK") || pmix_present() || torchrun_present(); }

int relaunch_self(const LaunchOptions& options) {
  std::ifstream file("/proc/self/cmdline", std::ios::binary);
  std::vector<std::string> argv;
  for (std::string argument; std::getline(file, argument, '\0');) argv.push_back(argument);
  if (argv.empty()) throw Error("cannot read /proc/self/cmdline: is /proc mounted?");
  return run_program("/proc/self/exe", argv, options);
}

}  // namespace weft
