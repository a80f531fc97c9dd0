// Jobs of processes: many ranks, and killed, stopped and forked ones.
// labels: multiproc waits
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/time.h>

#include <algorithm>
#include <atomic>
#include <map>
#include <new>
#include <sstream>

#include "tests/transport/rendezvous_helpers.h"

namespace weft {
namespace {

using namespace test;
using ::testing::HasSubstr;

// A forked process per rank. The line that a rank's body returns is sent to the test.
class Processes {
 public:
  using Body = std::function<std::string(const JobSpec&)>;

  Processes(int n, std::chrono::milliseconds timeout, const Body& body) : specs_(n, timeout) {
    if (pipe(lines_) != 0) std::abort();
    for (Rank r = 0; r < n; ++r) {
      const pid_t pid = fork();
      if (pid == 0) {
        ::close(lines_[0]);
        if (r != 0) ::close(specs_[0].listen_fd);
        std::string line;
        try {
          line = body(specs_[r]);
        } catch (const std::exception& e) {
          line = std::string("error: ") + e.what();
        }
        line = std::to_string(r) + ' ' + line + '\n';
        const bool written = ::write(lines_[1], line.data(), line.size()) > 0;
        _exit(written ? 0 : 1);
      }
      pids_.push_back(pid);
    }
    ::close(lines_[1]);
    ::close(specs_[0].listen_fd);
  }
  ~Processes() {
    for (const pid_t pid : pids_) kill(pid, SIGKILL);
    for (const pid_t pid : pids_) waitpid(pid, nullptr, 0);
    ::close(lines_[0]);
  }
  void signal(Rank r, int number) { kill(pids_[static_cast<std::size_t>(r)], number); }

  // The non-empty lines of all ranks, when all have ended (or `count` lines have arrived).
  std::map<Rank, std::string> lines(std::size_t count = SIZE_MAX) {
    char bytes[4096];
    ssize_t n = 0;
    const auto complete = [&] {
      return static_cast<std::size_t>(std::count(text_.begin(), text_.end(), '\n')) >= count;
    };
    while (!complete() && (n = ::read(lines_[0], bytes, sizeof bytes)) > 0) {
      text_.append(bytes, static_cast<std::size_t>(n));
    }
    std::map<Rank, std::string> lines;
    std::stringstream stream(text_);
    for (std::string line; std::getline(stream, line);) {
      const std::size_t space = line.find(' ');
      lines[std::stoi(line.substr(0, space))] = line.substr(space + 1);
    }
    return lines;
  }

 private:
  Specs specs_;
  int lines_[2];
  std::vector<pid_t> pids_;
  std::string text_;
};

std::string wait_for_failure(Job& job) {
  if (!eventually([&] { return job.failed(); })) return "no failure";
  const Status failure = job.failure();
  job.leave();
  return std::to_string(failure.rank()) + ' ' + failure.to_string();
}

TEST(Many, TwoHundredFiftySixRanks) {
  constexpr int kRanks = 256;
  Processes processes(kRanks, 60s, [](const JobSpec& spec) -> std::string {
    const auto job = connect(spec);
    const auto all = job->all_gather(std::to_string(spec.rank));
    for (Rank r = 0; r < kRanks; ++r) {
      if (all[static_cast<std::size_t>(r)] != std::to_string(r))
        return "wrong part of " + std::to_string(r);
    }
    const bool failed = job->failed();
    job->leave();
    return failed ? job->failure().to_string() : "good";
  });
  const auto lines = processes.lines();
  ASSERT_EQ(lines.size(), static_cast<std::size_t>(kRanks));
  for (const auto& [rank, line] : lines) EXPECT_EQ(line, "good") << "rank " << rank;
}

class Killed : public ::testing::TestWithParam<Rank> {};
INSTANTIATE_TEST_SUITE_P(Ranks, Killed, ::testing::Values(0, 1, 4),
                         [](const auto& info) { return "Rank" + std::to_string(info.param); });

TEST_P(Killed, IsNamedByAllOthers) {
  const Rank victim = GetParam();
  Processes processes(5, 20s, [&](const JobSpec& spec) {
    const auto job = connect(spec);
    (void)job->all_gather("here");
    if (spec.rank == victim) kill(getpid(), SIGKILL);
    return wait_for_failure(*job);
  });
  const auto lines = processes.lines();
  EXPECT_EQ(lines.size(), 4U);
  for (const auto& [rank, line] : lines) {
    EXPECT_THAT(line, ::testing::StartsWith(std::to_string(victim) + " peer failed: rank " +
                                            std::to_string(victim) + " (host "))
        << "rank " << rank;
    EXPECT_THAT(line, HasSubstr("died: connection closed"));
  }
}

TEST_P(Killed, InTheMiddleOfAGather) {
  const Rank victim = GetParam();
  Processes processes(5, 20s, [&](const JobSpec& spec) -> std::string {
    const auto job = connect(spec);
    if (spec.rank == victim) kill(getpid(), SIGKILL);
    const std::string error = error_of([&] { return job->all_gather(std::string(3 << 20, 'x')); });
    job->leave();
    return error;
  });
  const auto lines = processes.lines();
  EXPECT_EQ(lines.size(), 4U);
  for (const auto& [rank, line] : lines) {
    EXPECT_THAT(line, HasSubstr("rank " + std::to_string(victim) + " (host ")) << "rank " << rank;
  }
}

TEST(KilledEarly, WhileTheJobAssembles) {
  // Rank 3 never starts; rank 2 dies while it waits for rank 3. On a busy machine rank 2 may die
  // before ranks 0 and 1 have started: then the test tries again.
  for (const auto life : {500ms, 2000ms, 8000ms}) {
    Processes processes(4, 20s, [](const JobSpec& spec) -> std::string {
      if (spec.rank == 3) {
        std::this_thread::sleep_for(10s);
        return "slept";
      }
      (void)connect(spec);
      return "connected";
    });
    std::this_thread::sleep_for(life);
    processes.signal(2, SIGKILL);
    auto lines = processes.lines(2);
    if (!lines.contains(0) || !lines.contains(1)) lines = processes.lines(3);  // rank 3 came first
    ASSERT_TRUE(lines.contains(0) && lines.contains(1));
    const bool too_early = lines.at(0).find("ranks 2, 3 did not arrive") != std::string::npos ||
                           lines.at(1).find("could not reach rank 0") != std::string::npos;
    if (too_early && life < 8s) continue;
    EXPECT_THAT(lines.at(0), HasSubstr("rank 2 (host "));
    EXPECT_THAT(lines.at(0), HasSubstr("died while the job was assembling"));
    EXPECT_THAT(lines.at(1), HasSubstr("rank 2 (host "));
    return;
  }
}

class Stopped : public ::testing::TestWithParam<Rank> {};
INSTANTIATE_TEST_SUITE_P(Ranks, Stopped, ::testing::Values(0, 2),
                         [](const auto& info) { return "Rank" + std::to_string(info.param); });

TEST_P(Stopped, IsSilentAndNobodyElseIs) {
  const Rank victim = GetParam();
  // Heartbeats every 100 ms.
  Processes processes(4, 2s, [&](const JobSpec& spec) -> std::string {
    const auto job = connect(spec);
    (void)job->all_gather("here");
    if (spec.rank == victim) kill(getpid(), SIGSTOP);
    // On a busy machine other ranks may be late for a while.
    std::vector<Rank> silent;
    eventually([&] { return (silent = job->silent(1s)) == std::vector{victim}; });
    const bool failed = job->failed();
    job->leave();
    return silent.empty() ? "nobody" : name_ranks(silent) + (failed ? " failed" : "");
  });
  const auto lines = processes.lines(3);
  EXPECT_EQ(lines.size(), 3U);
  for (const auto& [rank, line] : lines) {
    EXPECT_EQ(line, "rank " + std::to_string(victim)) << "says rank " << rank;
  }
}

TEST(StoppedRank, AndContinuedIsWellAgainAndAccusesNobody) {
  void* const shared = mmap(nullptr, sizeof(std::atomic<int>), PROT_READ | PROT_WRITE,
                            MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  ASSERT_NE(shared, MAP_FAILED);
  auto& missed_by = *new (shared) std::atomic<int>(0);
  Processes processes(3, 20s, [&](const JobSpec& spec) -> std::string {
    const auto job = connect(spec);
    (void)job->all_gather("here");
    if (spec.rank == 1) kill(getpid(), SIGSTOP);
    // After its pause, rank 1 queries only ranks that have been silent for nearly as long: on a
    // busy machine some ranks may be silent for a shorter time.
    if (spec.rank == 1) {
      const auto silent = job->silent(2s);
      if (!silent.empty()) return "accuses " + name_ranks(silent);
    } else {
      if (!eventually([&] { return !job->silent(3s).empty(); })) return "never silent";
      ++missed_by;
      if (!eventually([&] { return job->silent(500ms).empty(); })) return "silent for ever";
    }
    (void)job->all_gather("again");
    const bool failed = job->failed();
    job->leave();
    return failed ? "failed" : "good";
  });
  EXPECT_TRUE(eventually([&] { return missed_by == 2; }));
  processes.signal(1, SIGCONT);
  const auto lines = processes.lines();
  EXPECT_EQ(lines.size(), 3U);
  for (const auto& [rank, line] : lines) EXPECT_EQ(line, "good") << "rank " << rank;
  munmap(shared, sizeof(std::atomic<int>));
}

TEST(StoppedRank, IsNamedByTheGatherItMisses) {
  Processes processes(3, 1s, [](const JobSpec& spec) -> std::string {
    const auto job = connect(spec);
    if (spec.rank == 1) kill(getpid(), SIGSTOP);
    return error_of([&] { return job->all_gather("x"); });
  });
  const auto lines = processes.lines(2);
  EXPECT_EQ(lines.size(), 2U);
  for (const auto& [rank, line] : lines) {
    EXPECT_EQ(line, "rank 1 did not arrive at all_gather number 1 within 1000 ms") << rank;
  }
}

TEST(Forked, AChildDoesNotHideTheDeathOfItsParent) {
  Processes processes(3, 20s, [](const JobSpec& spec) -> std::string {
    const auto job = connect(spec);
    (void)job->all_gather("here");
    if (spec.rank == 1) {
      if (fork() == 0) {
        // The child outlives the rank, and its use of the job has no effect.
        job->report(Status(Code::kInternal, "from the child"));
        job->leave();
        if (job->failure().code() != Code::kAborted || !job->silent(0ms).empty()) _exit(1);
        std::this_thread::sleep_for(5s);
        _exit(0);
      }
      kill(getpid(), SIGKILL);
    }
    return wait_for_failure(*job);
  });
  const auto lines = processes.lines(2);
  EXPECT_EQ(lines.size(), 2U);
  for (const auto& [rank, line] : lines) {
    EXPECT_THAT(line, ::testing::StartsWith("1 peer failed: rank 1 (host ")) << "rank " << rank;
  }
}

TEST(Forked, AChildMayDestroyTheJob) {
  Processes processes(2, 20s, [](const JobSpec& spec) -> std::string {
    auto job = connect(spec);
    (void)job->all_gather("here");
    const pid_t child = fork();
    if (child == 0) {
      job.reset();
      _exit(7);
    }
    int status = 0;
    waitpid(child, &status, 0);
    (void)job->all_gather("still here");
    const bool failed = job->failed();
    job->leave();
    return !failed && WEXITSTATUS(status) == 7 ? "good" : "bad";
  });
  for (const auto& [rank, line] : processes.lines()) EXPECT_EQ(line, "good") << "rank " << rank;
}

TEST(Signals, DoNotDisturb) {
  Processes processes(3, 20s, [](const JobSpec& spec) -> std::string {
    // A handler without SA_RESTART interrupts every system call of this thread.
    struct sigaction action {};
    action.sa_handler = [](int) {};
    sigaction(SIGALRM, &action, nullptr);
    const itimerval often{{0, 500}, {0, 500}};
    setitimer(ITIMER_REAL, &often, nullptr);
    const auto job = connect(spec);
    for (int i = 0; i < 50; ++i) {
      const auto all = job->all_gather(std::string(10000, static_cast<char>('a' + spec.rank)));
      if (all[2] != std::string(10000, 'c')) return "wrong";
    }
    const bool failed = job->failed();
    job->leave();
    return failed ? "failed" : "good";
  });
  const auto lines = processes.lines();
  EXPECT_EQ(lines.size(), 3U);
  for (const auto& [rank, line] : lines) EXPECT_EQ(line, "good") << "rank " << rank;
}

}  // namespace
}  // namespace weft
