// Starts the ranks of a job on this host: as processes of a given program, of this program again,
// or as forked calls of a function. Does not depend on the ranks' program.
#pragma once

#include <chrono>
#include <functional>
#include <string>
#include <vector>

#include "topo/base/status.h"

namespace weft {

struct LaunchOptions {
  int ranks = 1;
  std::vector<std::string> host_ids;  // WEFT_HOST_ID of each rank; empty: from `hosts`
  int hosts = 1;                      // > 1: emulated hosts "host0", "host1" .. in blocks of ranks
  int rails = 1;                      // emulated rails per host (WEFT_EMULATE_RAILS)
  std::chrono::milliseconds timeout{0};   // WEFT_TIMEOUT_MS if > 0
  std::chrono::milliseconds grace{5000};  // time for other ranks to end after a failure
  // Binds each rank to its share of the cores (one core, round robin, if there are more ranks than
  // cores). Ranks that share a core and wait for each other double every latency.
  bool bind = true;
  bool tag = false;  // true: "[rank] " precedes each line of output
  // Ranks report their own errors; the launcher reports only killed ranks.
  bool ranks_say_why = false;
  // A killed rank does not end the job: the other ranks decide whether to continue.
  bool outlives_killed = false;
  // With outlives_killed: how many times a killed rank is restarted immediately, with kReplaces
  // set. A restarted rank cannot use WEFT_ROOT to connect to the other ranks.
  int replacements = 0;
  // Exit code of a job in which a rank was killed, or exited with a code above 128; 0: 128 +
  // signal.
  int killed_code = 0;
  std::string name = "weft";  // the prefix of the launcher's messages
};

// Set in the environment of a rank that replaces a killed rank.
inline constexpr const char* kReplaces = "WEFT_REPLACES_A_RANK";

// Exit codes of a job whose program could not be started; shells use the same codes.
inline constexpr int kExitNotFound = 127;
inline constexpr int kExitNotExecutable = 126;

// Runs `argv` once per rank with WEFT_RANK, WEFT_SIZE, WEFT_LOCAL_RANK, WEFT_ROOT, WEFT_SECRET (and
// WEFT_ROOT_FD on rank 0) set, and waits for all ranks. Copies their output; rank 0 gets stdin.
// Returns 0, or the code of the first failing rank (killed_code if it was killed), and prints that
// rank to stderr (except with ranks_say_why); 128 + signal after Ctrl-C or a similar signal. After
// a failure the other ranks have options.grace to end before SIGTERM, and 2 s more before SIGKILL.
// No process of the job remains, even if this process is killed. Throws Error if the options are
// impossible. The calling process must have only one thread.
int run_local_job(const std::vector<std::string>& argv, const LaunchOptions& options);

// Runs `body` once per rank in a forked child, with its result as exit code; otherwise like the
// function above.
int run_local_job(const std::function<int(Rank)>& body, const LaunchOptions& options);

// Returns whether a launcher (weft launch, PMIx, torchrun) has started this process.
bool launched();

// Calls run_local_job() with this program and its arguments.
int relaunch_self(const LaunchOptions& options);

}  // namespace weft
