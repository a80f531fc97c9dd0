// Starts the ranks of a job on this host: as processes of a given program, of this program again,
// or as forked calls of a function. Does not know what the ranks do.
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
  // Binds each rank to its share of the cores (ranks > cores: one core, round robin): ranks that
  // share a core and wait for each other double every latency.
  bool bind = true;
  bool tag = false;            // put "[rank] " before each line of output
  bool ranks_say_why = false;  // ranks report their own errors; report killed ranks only
  // A killed rank does not end the job: the other ranks continue, or end it themselves.
  bool outlives_killed = false;
  // With outlives_killed: how often a killed rank is restarted at once, with kReplaces set. It does
  // not find the other ranks by WEFT_ROOT.
  int replacements = 0;
  // Exit code for a job with a killed rank, or a rank whose code says so; 0: 128 + signal.
  int killed_code = 0;
  std::string name = "weft";  // the prefix of the launcher's messages
};

// Set in the environment of a rank that replaces a killed one.
inline constexpr const char* kReplaces = "WEFT_REPLACES_A_RANK";

// Exit codes of a job whose program could not be started; shells use the same codes.
inline constexpr int kExitNotFound = 127;
inline constexpr int kExitNotExecutable = 126;

// Runs `argv` once per rank with WEFT_RANK, WEFT_SIZE, WEFT_LOCAL_RANK, WEFT_ROOT, WEFT_SECRET (and
// WEFT_ROOT_FD on rank 0) set, and waits for all ranks. Copies their output; rank 0 has stdin.
// Returns 0, or the code of the first failing rank (killed_code if it was killed), which it names
// on stderr (but see ranks_say_why); 128 + signal after Ctrl-C or the like. After a failure the
// other ranks have options.grace to end before SIGTERM, and 2 s more before SIGKILL. Leaves no
// process behind, even if this process is killed. Throws Error for impossible options. The calling
// process must have one thread.
int run_local_job(const std::vector<std::string>& argv, const LaunchOptions& options);

// Runs `body` once per rank in a forked child, with its result as exit code; otherwise as above.
int run_local_job(const std::function<int(Rank)>& body, const LaunchOptions& options);

// Returns whether a launcher (weft launch, PMIx, torchrun) has started this process.
bool launched();

// Calls run_local_job() with this program and its arguments.
int relaunch_self(const LaunchOptions& options);

}  // namespace weft
