// The processes of a lab: started together, waited for, and ended in every case. Knows nothing of
// hosts and rails. For a process with one thread: children change their environment after fork.
#pragma once

#include <chrono>
#include <string>
#include <utility>
#include <vector>

namespace weft {

struct RankCommand {
  std::vector<std::string> argv;
  std::vector<std::pair<std::string, std::string>> environment;  // on top of this process's own
  int core = -1;  // >= 0: keeps to the core of this number, modulo those this process may use
};

// While one lives, signals that ask this process to end wait until run_ranks() or the destructor
// lets them through, so that nobody leaves without tidying up. A closed pipe is no signal either.
class SignalGuard {
 public:
  SignalGuard();
  ~SignalGuard();
  SignalGuard(const SignalGuard&) = delete;
  SignalGuard& operator=(const SignalGuard&) = delete;
};

// Runs a program to its end, out of reach of the terminal's Ctrl-C, and returns its exit code
// (128 + signal when one ended it). Its standard output goes to `*output` unless that is null.
int run_helper(const std::vector<std::string>& argv, std::string* output = nullptr);

// Runs all commands at once, with no standard input, and returns the worst (highest) exit code, or
// 128 + signal when this process was asked to end. Needs a SignalGuard. Ranks that outlive the
// first failure by `grace` are ended, and so are all when this process dies.
int run_ranks(const std::vector<RankCommand>& commands, std::chrono::seconds grace);

}  // namespace weft
