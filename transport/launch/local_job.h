// Starting the ranks of a job on this host: as processes of a given program, of this program
// again, or as forked calls of a function. Knows nothing of what the ranks do.
#pragma once

#include <chrono>
#include <functional>
#include <string>
#include <vector>

#include "topo/base/status.h"

namespace weft {

struct LaunchOptions {
  int ranks = 1;
  std::vector<std::string> host_ids;  // WEFT_HOST_ID of each rank; empty: see hosts
  int hosts = 1;                      // > 1: emulated hosts "host0", "host1" .. in blocks of ranks
  int rails = 1;                      // emulated rails per host (WEFT_EMULATE_RAILS)
  std::chrono::milliseconds timeout{0};   // WEFT_TIMEOUT_MS where > 0
  std::chrono::milliseconds grace{5000};  // for the other ranks to end after the first failure
  // Each rank keeps to its share of the cores (ranks > cores: to one core, in turn): a rank that
  // shares a core with the one it waits for doubles every latency.
  bool bind = true;
  bool tag = false;            // put "[rank] " before each line of output
  bool ranks_say_why = false;  // of an exit code: only ranks that were killed are named
  // Of a job of which a rank was killed, or left with a code that reads so; 0: 128 + signal.
  int killed_code = 0;
  std::string name = "weft";  // in front of our own messages
};

// Exit code of a job whose program could not be started, as shells have it.
inline constexpr int kExitNotFound = 127;
inline constexpr int kExitNotExecutable = 126;

// Runs `argv` once per rank with WEFT_RANK, WEFT_SIZE, WEFT_LOCAL_RANK, WEFT_ROOT, WEFT_SECRET
// (and WEFT_ROOT_FD on rank 0) set, and waits for all of them. Output passes through; input goes
// to rank 0. Returns 0, or what the first failing rank returned (killed_code if it was killed),
// after saying on stderr which rank that was (but see ranks_say_why); or 130 and the like after
// Ctrl-C. The other ranks then have options.grace to end by themselves before SIGTERM, and 2 s more
// before SIGKILL. Nothing stays behind, even when this process is killed. Throws Error for options
// that cannot work. Call it while the process has one thread.
int run_local_job(const std::vector<std::string>& argv, const LaunchOptions& options);

// The same with a function that returns the exit code, called in a forked child.
int run_local_job(const std::function<int(Rank)>& body, const LaunchOptions& options);

// Whether a launcher has started this process: weft launch, PMIx, torchrun.
bool launched();

// run_local_job of this very program with its own arguments.
int relaunch_self(const LaunchOptions& options);

}  // namespace weft
