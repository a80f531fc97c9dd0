// Ranks as processes, which can be killed and stopped: Processes job(n, spec, body).
#pragma once

#include <fcntl.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <exception>
#include <functional>
#include <new>
#include <string>
#include <thread>
#include <vector>

#include "transport/control/socket.h"
#include "transport/job/bootstrap.h"

namespace weft::testing {

// Memory shared by the test and all its ranks. T is initially zero bytes.
template <typename T>
class Shared {
 public:
  explicit Shared(std::size_t count) : bytes_(count * sizeof(T)) {
    data_ = static_cast<T*>(
        mmap(nullptr, bytes_, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0));
    if (data_ == MAP_FAILED) throw std::bad_alloc();
  }
  ~Shared() { munmap(data_, bytes_); }
  Shared(const Shared&) = delete;
  Shared& operator=(const Shared&) = delete;
  T& operator[](int i) { return data_[i]; }

 private:
  std::size_t bytes_;
  T* data_;
};

class Processes {
 public:
  using Clock = std::chrono::steady_clock;

  // Forks n ranks; each calls body(its spec) and exits with the result.
  Processes(int n, std::chrono::milliseconds rendezvous_timeout,
            const std::function<int(const JobSpec&)>& body) {
    const std::vector<std::uint16_t> any{0};
    Fd listener = listen_on("127.0.0.1", any);
    JobSpec spec;
    spec.size = n;
    spec.address = "127.0.0.1";
    spec.ports = {port_of(listener.get())};
    spec.secret = "the secret of this test";
    spec.timeout = rendezvous_timeout;
    const int for_rank_0 = fcntl(listener.get(), F_DUPFD_CLOEXEC, 0);
    std::fflush(nullptr);
    for (Rank r = 0; r < n; ++r) {
      const pid_t pid = fork();
      if (pid != 0) {
        pids_.push_back(pid);
        continue;
      }
      prctl(PR_SET_PDEATHSIG, SIGKILL);
      spec.rank = r;
      if (r == 0)
        spec.listen_fd = for_rank_0;
      else
        close(for_rank_0);
      int code = 1;
      try {
        code = body(spec);
      } catch (const std::exception& e) {
        std::fprintf(stderr, "rank %d: %s\n", r, e.what());
      }
      std::fflush(nullptr);
      _exit(code);
    }
    close(for_rank_0);
    codes_.assign(pids_.size(), kRuns);
  }

  ~Processes() {
    for (std::size_t r = 0; r < pids_.size(); ++r) {
      if (codes_[r] != kRuns) continue;
      kill(pids_[r], SIGKILL);
      waitpid(pids_[r], nullptr, 0);
    }
  }
  Processes(const Processes&) = delete;
  Processes& operator=(const Processes&) = delete;

  static constexpr int kRuns = -1;

  pid_t pid(Rank r) const { return pids_[static_cast<std::size_t>(r)]; }
  void signal(Rank r, int number) { kill(pid(r), number); }

  // Exit code of a rank: 128 + n if signal n ended it, kRuns while it runs.
  int code(Rank r) {
    int& code = codes_[static_cast<std::size_t>(r)];
    int status = 0;
    if (code == kRuns && waitpid(pid(r), &status, WNOHANG) == pid(r))
      code = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
    return code;
  }

  // Waits until all ranks but `without` have ended; false on timeout.
  bool wait(std::chrono::milliseconds time, Rank without = kNoRank) {
    return wait_until(time, [&] {
      for (Rank r = 0; r < static_cast<Rank>(pids_.size()); ++r)
        if (r != without && code(r) == kRuns) return false;
      return true;
    });
  }

  static bool wait_until(std::chrono::milliseconds time, const std::function<bool()>& condition) {
    const auto end = Clock::now() + time;
    while (!condition()) {
      if (Clock::now() > end) return false;
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    return true;
  }

 private:
  std::vector<pid_t> pids_;
  std::vector<int> codes_;
};

}  // namespace weft::testing
