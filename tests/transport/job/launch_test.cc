// weft launch: the environment of ranks, reports of their exits, and that no process stays behind.
// labels: multiproc waits
// sanitize: long
#include <fcntl.h>
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdlib>
#include <fstream>
#include <set>
#include <sstream>
#include <string>
#include <thread>
#include <vector>

#include "support/process/shell.h"
#include "support/process/temporary_folder.h"
#include "transport/job/bootstrap.h"
#include "transport/launch/local_job.h"

namespace weft {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::UnorderedElementsAre;

struct Result {
  int code = -1;
  std::string out, err;
  std::vector<std::string> lines() const {
    std::vector<std::string> lines;
    std::stringstream stream(out);
    for (std::string line; std::getline(stream, line);) lines.push_back(line);
    return lines;
  }
};

std::string read_all(int fd) {
  std::string text;
  char bytes[4096];
  ssize_t n = 0;
  while ((n = read(fd, bytes, sizeof bytes)) > 0) text.append(bytes, static_cast<std::size_t>(n));
  return text;
}

// A running `weft launch`.
class Launch {
 public:
  explicit Launch(std::vector<std::string> arguments, bool blocking = true) {
    arguments.insert(arguments.begin(), {WEFT_BINARY, "launch"});
    int out[2], err[2];
    if (pipe2(out, O_CLOEXEC) != 0 || pipe2(err, O_CLOEXEC) != 0) std::abort();
    if (!blocking) fcntl(out[1], F_SETFL, O_NONBLOCK);
    std::vector<char*> argv;
    for (std::string& a : arguments) argv.push_back(a.data());
    argv.push_back(nullptr);
    pid_ = fork();
    if (pid_ == 0) {
      dup2(out[1], 1);
      dup2(err[1], 2);
      execv(argv[0], argv.data());
      _exit(99);
    }
    close(out[1]);
    close(err[1]);
    out_ = out[0];
    err_ = err[0];
  }
  ~Launch() {
    if (pid_ > 0) kill(pid_, SIGKILL), waitpid(pid_, nullptr, 0);
    close(out_);
    close(err_);
  }
  pid_t pid() const { return pid_; }
  // The next line of the ranks' output.
  std::string line() const {
    std::string line;
    for (char c = 0; read(out_, &c, 1) == 1 && c != '\n';) line += c;
    return line;
  }
  // All output until every process that holds the output streams has ended.
  Result end() {
    Result r;
    std::thread reader([&] { r.err = read_all(err_); });
    r.out = read_all(out_);
    reader.join();
    int status = 0;
    waitpid(pid_, &status, 0);
    pid_ = -1;
    r.code = WIFEXITED(status) ? WEXITSTATUS(status) : 1000 + WTERMSIG(status);
    return r;
  }

 private:
  pid_t pid_ = -1;
  int out_ = -1, err_ = -1;
};

Result launch(const std::vector<std::string>& arguments) { return Launch(arguments).end(); }

Result shell(const std::vector<std::string>& options, const std::string& script) {
  std::vector<std::string> arguments = options;
  arguments.insert(arguments.end(), {"--", "sh", "-c", script});
  return launch(arguments);
}

TEST(Launch, GivesEachRankItsPlace) {
  const Result r = shell({"-N", "3"}, "echo $WEFT_RANK of $WEFT_SIZE local $WEFT_LOCAL_RANK");
  EXPECT_EQ(r.code, 0) << r.err;
  EXPECT_THAT(r.lines(),
              UnorderedElementsAre("0 of 3 local 0", "1 of 3 local 1", "2 of 3 local 2"));
  EXPECT_EQ(r.err, "");
}

TEST(Launch, GivesAllTheSameRootAndASecretThatNobodyElseHas) {
  const auto secrets = [] {
    const Result r = shell({"-N", "4"}, "echo $WEFT_ROOT $WEFT_SECRET");
    const auto lines = r.lines();
    EXPECT_EQ(lines.size(), 4U);
    const std::set<std::string> same(lines.begin(), lines.end());
    EXPECT_EQ(same.size(), 1U);
    EXPECT_THAT(lines[0], ::testing::ContainsRegex("^127.0.0.1:[0-9]+ [0-9a-f]{64}$"));
    return lines[0].substr(lines[0].find(' '));
  };
  EXPECT_NE(secrets(), secrets());
}

TEST(Launch, OnlyRankZeroHasTheListeningSocket) {
  const Result r = shell(
      {"-N", "2"}, "echo $WEFT_RANK ${WEFT_ROOT_FD:+fd} $(ls -l /proc/$$/fd | grep -c socket:)");
  EXPECT_THAT(r.lines(), UnorderedElementsAre("0 fd 1", "1 0"));
}

TEST(Launch, EmulatesHostsAndRails) {
  const std::string script =
      "echo $WEFT_RANK $WEFT_HOST_ID $WEFT_LOCAL_RANK rails $WEFT_EMULATE_RAILS";
  EXPECT_THAT(shell({"-N", "4", "--hosts", "2", "--rails", "3"}, script).lines(),
              UnorderedElementsAre("0 host0 0 rails 3", "1 host0 1 rails 3", "2 host1 0 rails 3",
                                   "3 host1 1 rails 3"));
  EXPECT_THAT(shell({"-N", "3", "--host-ids", "a,b,a"}, script).lines(),
              UnorderedElementsAre("0 a 0 rails", "1 b 0 rails", "2 a 1 rails"));
  EXPECT_THAT(shell({"-N", "1", "--timeout-ms", "1234"}, "echo $WEFT_TIMEOUT_MS").lines(),
              ElementsAre("1234"));
}

TEST(Launch, RefusesWhatCannotWork) {
  for (const auto& [options, expected] :
       {std::pair<std::vector<std::string>, std::string>{{"-N", "0"}, "-N 0"},
        {{"-N", "2", "--hosts", "3"}, "--hosts 3"},
        {{"-N", "2", "--rails", "0"}, "--rails 0"},
        {{"-N", "2", "--rails", "1000000"}, "--rails 1000000"},
        {{"-N", "3", "--host-ids", "a,b"}, "--host-ids names 2 hosts, but there are 3 ranks"},
        {{"-N", "3", "--host-ids", "a,,b"}, "--host-ids names no host for rank 1"},
        {{"-N", "x"}, "x"}}) {
    const Result r = shell(options, "echo ran");
    EXPECT_EQ(r.code, 4) << expected;
    EXPECT_EQ(r.out, "");
    EXPECT_THAT(r.err, HasSubstr(expected));
  }
  EXPECT_EQ(launch({"-N", "2"}).code, 4);
}

TEST(Launch, PassesArgumentsAndOutputThroughUnchanged) {
  const Result r = launch({"-N", "1", "--", "printf", "%s|", "-n", "--tag", "a b", "--", ""});
  EXPECT_EQ(r.out, "-n|--tag|a b|--||");
  EXPECT_EQ(shell({"-N", "1"}, "echo wrong >&2").err, "wrong\n");
}

TEST(Launch, TagsLines) {
  const Result r = shell({"-N", "2", "--tag"}, "echo one; echo two; printf three; echo err >&2");
  EXPECT_THAT(r.lines(), UnorderedElementsAre("[0] one", "[0] two", "[0] three", "[1] one",
                                              "[1] two", "[1] three"));
  EXPECT_THAT(r.err, AllOf(HasSubstr("[0] err\n"), HasSubstr("[1] err\n")));
}

TEST(Launch, TagsALongLineAsOne) {
  const Result r = shell({"-N", "1", "--tag"}, "head -c 5000000 /dev/zero; echo; echo second");
  EXPECT_EQ(r.out.size(), 4u + 5'000'000 + 1 + 4 + 7);
  EXPECT_THAT(r.out, HasSubstr("\n[0] second\n"));
}

TEST(Launch, LinesThatCannotBePassedOnAreAnError) {
  const Output r = run(WEFT_BINARY " launch -N 2 --tag -- echo lost > /dev/full");
  EXPECT_EQ(r.exit_code, 4);
  EXPECT_THAT(r.text, HasSubstr("output cannot be written: No space left on device"));
}

// Regression: lines were lost on a full stream that another process had made non-blocking.
TEST(Launch, WaitsForAReaderWhoIsSlow) {
  Launch job({"-N", "1", "--tag", "--", "seq", "1", "60000"}, false);
  std::this_thread::sleep_for(std::chrono::milliseconds(300));
  const Result r = job.end();
  EXPECT_EQ(r.code, 0) << r.err;
  EXPECT_EQ(r.lines().size(), 60000u);
}

// Two files per rank: more than the limit of most shells, and more than the ranks' own limit.
TEST(Launch, ThereAreFilesForTheStreamsOfAllRanks) {
  const Output r = run("ulimit -Sn 40; " WEFT_BINARY " launch -N 30 --tag -- sh -c 'ulimit -Sn'");
  if (r.text.find("cannot modify") != r.text.npos)
    GTEST_SKIP() << "missing capability: a limit of open files that can be set";
  EXPECT_EQ(r.exit_code, 0) << r.text;
  EXPECT_THAT(r.text, HasSubstr("[29] 40\n"));
}

// Regression: when the guard was killed (for lack of memory, say), the launcher died of SIGPIPE
// after the ranks had finished.
TEST(Launch, DoesWithoutItsGuard) {
  const Result r = shell({"-N", "1"},
                         "for p in $(pgrep -P $PPID); do [ $p = $$ ] || { kill -9 $p; "
                         "while ! grep -q ' Z ' /proc/$p/stat; do sleep 0.01; done; }; done");
  EXPECT_EQ(r.code, 0) << r.err;
}

TEST(Launch, UnknownProgram) {
  Result r = launch({"-N", "2", "--", "no-such-program-of-weft"});
  EXPECT_EQ(r.code, 127);
  EXPECT_EQ(r.err, "weft launch: cannot start \"no-such-program-of-weft\": no such program\n");
  r = launch({"-N", "2", "--", "/etc/passwd"});
  EXPECT_EQ(r.code, 126);
  EXPECT_THAT(r.err, HasSubstr("not executable"));
}

TEST(Launch, NamesTheFirstFailingRank) {
  Result r = shell({"-N", "3"}, "test $WEFT_RANK = 2 && exit 3; sleep 1");
  EXPECT_EQ(r.code, 3);
  EXPECT_THAT(r.err, HasSubstr("rank 2 exited with code 3"));
  r = shell({"-N", "3"}, "test $WEFT_RANK = 1 && kill -9 $$; sleep 1");
  EXPECT_EQ(r.code, 128 + 9);
  EXPECT_THAT(r.err, HasSubstr("rank 1 was killed by signal 9"));
}

// Rank 0 exits when a pipe of rank 1 closes. Rank 1 is killed and closes many sockets between this
// pipe and the other one, so that its death takes long.
TEST(LocalJob, NamesTheOneWhoWasKilledAndNotWhoKnewOfItFirst) {
  const testing::TemporaryFolder folder;
  const std::string first = folder / "first", last = folder / "last";
  ASSERT_EQ(mkfifo(first.c_str(), 0600) | mkfifo(last.c_str(), 0600), 0);
  const auto body = [&](Rank rank) {
    const int flags = rank == 1 ? O_WRONLY : O_RDONLY;  // each waits for the other
    const int a = open(first.c_str(), flags), b = open(last.c_str(), flags);
    if (rank == 1) {
      int highest = b;
      // Takes many milliseconds, but not seconds, even if a process may have a million files.
      for (int fd = 0; highest < 8000 && (fd = socket(AF_INET, SOCK_DGRAM, 0)) >= 0;) highest = fd;
      dup2(b, highest);
      close(b);
      raise(SIGKILL);
    }
    pollfd ends[] = {{a, POLLIN, 0}, {b, POLLIN, 0}};
    poll(ends, 2, 60000);
    return 2;
  };
  LaunchOptions options;
  options.ranks = 2;
  ::testing::internal::CaptureStderr();
  EXPECT_EQ(run_local_job(body, options), 128 + SIGKILL);
  EXPECT_THAT(::testing::internal::GetCapturedStderr(), HasSubstr("rank 1 was killed by signal 9"));
}

// A code above 128 means that the job itself was interrupted.
TEST(LocalJob, ARankThatLeavesWithAnyCodeIsNoSignalToTheJob) {
  LaunchOptions options;
  options.ranks = 2;
  options.killed_code = 2;
  ::testing::internal::CaptureStderr();
  EXPECT_EQ(run_local_job([](Rank rank) { return rank == 1 ? 255 : 0; }, options), 2);
  EXPECT_EQ(run_local_job([](Rank rank) { return rank == 1 ? raise(SIGKILL) : 0; }, options), 2);
  EXPECT_EQ(run_local_job([](Rank rank) { return rank == 1 ? 7 : 0; }, options), 7);
  EXPECT_THAT(::testing::internal::GetCapturedStderr(), HasSubstr("rank 1 exited with code 255"));
}

// If ranks survive a killed one, the last rank decides the job's exit code.
TEST(LocalJob, RanksThatOutliveOneEndTheJobThemselves) {
  LaunchOptions options;
  options.ranks = 2;
  options.killed_code = 2;
  options.grace = std::chrono::milliseconds(1);
  options.outlives_killed = true;
  void* page = mmap(nullptr, sizeof(std::atomic<pid_t>), PROT_READ | PROT_WRITE,
                    MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  ASSERT_NE(page, MAP_FAILED);
  auto& dead = *new (page) std::atomic<pid_t>;
  const auto code_of_job = [&](int of_rank_0) {
    dead = 0;
    return run_local_job(
        [&](Rank rank) {
          if (rank == 1) {
            dead = getpid();
            raise(SIGKILL);
          }
          // The process exists until the launcher has reaped it.
          while (dead == 0 || kill(dead, 0) == 0)
            std::this_thread::sleep_for(std::chrono::milliseconds(1));
          std::this_thread::sleep_for(std::chrono::milliseconds(100));  // beyond the grace period
          return of_rank_0;
        },
        options);
  };
  ::testing::internal::CaptureStderr();
  EXPECT_EQ(code_of_job(0), 0);
  EXPECT_EQ(code_of_job(7), 7);
  EXPECT_EQ(run_local_job([](Rank) { return raise(SIGKILL); }, options), 2);
  EXPECT_THAT(::testing::internal::GetCapturedStderr(),
              HasSubstr("rank 1 was killed by signal 9 (Killed); 1 still running"));
}

TEST(Launch, TheOthersHaveTimeForTheirOwnLastWords) {
  const Result r =
      shell({"-N", "2"}, "test $WEFT_RANK = 1 && exit 3; sleep 2; echo my last words; exit 5");
  EXPECT_EQ(r.code, 3);
  EXPECT_THAT(r.out, HasSubstr("my last words"));
}

TEST(Launch, ThenTheyAreTerminatedAndThenKilled) {
  // sh ignores SIGTERM, and so does its child.
  const Result r = shell({"-N", "2", "--grace-ms", "200"},
                         "trap '' TERM; test $WEFT_RANK = 1 && exit 3; sleep 1000; echo survived");
  EXPECT_EQ(r.code, 3);
  EXPECT_THAT(r.err, HasSubstr("rank 0 did not end in 200 ms"));
  EXPECT_EQ(r.out, "");
}

TEST(Launch, StoppedRanksEndToo) {
  const Result r =
      shell({"-N", "2", "--grace-ms", "200"}, "test $WEFT_RANK = 1 && exit 3; kill -STOP $$");
  EXPECT_EQ(r.code, 3);
}

TEST(Launch, CtrlCReachesTheRanks) {
  Launch job({"-N", "2", "--", "sh", "-c",
              "trap 'echo caught; exit 9' INT; echo up; while :; do sleep 0.05; done"});
  EXPECT_EQ(job.line() + job.line(), "upup");
  kill(job.pid(), SIGINT);
  const Result r = job.end();
  EXPECT_EQ(r.code, 130);
  EXPECT_THAT(r.lines(), ElementsAre("caught", "caught"));
}

TEST(Launch, NothingStaysBehindWhenItIsKilled) {
  // Includes a rank's own children: end() returns when all holders of the pipe are gone.
  Launch job({"-N", "2", "--", "sh", "-c", "sleep 1000 & echo up; wait"});
  EXPECT_EQ(job.line() + job.line(), "upup");
  kill(job.pid(), SIGKILL);
  EXPECT_EQ(job.end().code, 1000 + SIGKILL);
}

TEST(Launch, NothingStaysBehindWhenRanksEnd) {
  const Result r = shell({"-N", "2"}, "sleep 1000 & exit 0");
  EXPECT_EQ(r.code, 0) << r.err;
}

TEST(LocalJob, RunsAFunctionPerRankThatConnects) {
  LaunchOptions options;
  options.ranks = 4;
  const int code = run_local_job(
      [](Rank rank) {
        const auto job = connect(job_from_environment());
        const auto all = job->all_gather(std::to_string(rank));
        job->leave();
        return all == std::vector<std::string>{"0", "1", "2", "3"} && job->rank() == rank &&
                       launched()
                   ? 0
                   : 1;
      },
      options);
  EXPECT_EQ(code, 0);
  EXPECT_FALSE(launched());
}

TEST(LocalJob, AnExceptionIsAFailure) {
  LaunchOptions options;
  EXPECT_EQ(run_local_job([](Rank) -> int { throw Error("rank 0 says why"); }, options), 1);
}

// The test below runs this program again: first as the relaunching program, then as its ranks.
int relaunched() {
  if (!launched()) {
    LaunchOptions options;
    options.ranks = 3;
    return relaunch_self(options);
  }
  const auto job = connect(job_from_environment());
  const auto all = job->all_gather("x");
  job->leave();
  return all.size() == 3 ? 40 + job->rank() : 1;
}

[[maybe_unused]] const bool kNotRelaunched = [] {
  if (std::getenv("WEFT_TEST_RELAUNCHED") != nullptr) std::exit(relaunched());
  return true;
}();

TEST(LocalJob, RelaunchSelf) {
  char self[4096] = "";
  ASSERT_GT(readlink("/proc/self/exe", self, sizeof self - 1), 0);
  const std::string command = fmt::format("WEFT_TEST_RELAUNCHED=1 '{}' 2>&1 >/dev/null", self);
  FILE* const pipe = popen(command.c_str(), "r");
  const std::string text = read_all(fileno(pipe));
  const int status = pclose(pipe);
  // Ranks 1 and 2 exit with 41 and 42, rank 0 with 40: the first one is reported.
  EXPECT_THAT(text, ::testing::ContainsRegex("rank [0-2] exited with code 4[0-2]"));
  EXPECT_GE(WEXITSTATUS(status), 40);
  EXPECT_LE(WEXITSTATUS(status), 42);
}

}  // namespace
}  // namespace weft
