// Starts the processes of a lab together, waits for them, and always ends them. This file does not
// depend on hosts and rails. The caller must be single-threaded: children change their environment
// after fork.
#pragma once

#include <chrono>
#include <string>
#include <utility>
#include <vector>

namespace weft {

struct RankCommand {
  std::vector<std::string> argv;
  // Variables added to this process's environment.
  std::vector<std::pair<std::string, std::string>> environment;
  int core = -1;  // >= 0: index, modulo their number, of a core of this process's affinity
};

// Blocks the signals that ask this process to end, until run_ranks() handles them or the guard's
// destructor unblocks them, so that the lab is always removed.
class SignalGuard {
 public:
  SignalGuard();
  ~SignalGuard();
  SignalGuard(const SignalGuard&) = delete;
  SignalGuard& operator=(const SignalGuard&) = delete;
};

// Runs a program to its end, shielded from the terminal's Ctrl-C, and returns its exit code (128 +
// signal when a signal ended it). Stores the program's standard output in `*output` unless `output`
// is null.
int run_helper(const std::vector<std::string>& argv, std::string* output = nullptr);

// Runs all commands at once, with no standard input, and returns the highest exit code, or 128 +
// signal when this process was asked to end. Needs a SignalGuard. Ends ranks that outlive the first
// failure by `grace`; all ranks end when this process dies.
int run_ranks(const std::vector<RankCommand>& commands, std::chrono::milliseconds grace);

}  // namespace weft
