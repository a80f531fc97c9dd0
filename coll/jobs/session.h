// Code shared by the parallel commands (perf, validate, train): a launcher or the command itself
// starts the ranks, and a failed job prints one message and exits with one code.
#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <string>
#include <string_view>

#include "coll/api/communicator.h"
#include "topo/base/status.h"
#include "topo/topology.h"
#include "transport/launch/failures.h"

namespace CLI {
class App;
class Option;
}  // namespace CLI

namespace weft {

struct JobFlags {
  int ranks = 0;  // 0: not given
  int hosts = 0;
  int rails = 0;
  std::string transport = "auto";
  int timeout_ms = 30000;                // ignored if WEFT_TIMEOUT_MS is set
  const CLI::Option* timeout = nullptr;  // --timeout-ms, which overrides WEFT_TIMEOUT_MS
  double rail_gbps = 0;                  // Gb/s; 0: WEFT_RAIL_GBPS, else measured
  bool outlives_killed = false;          // local ranks continue if one is killed
  // With outlives_killed: number of local ranks that are restarted (LaunchOptions).
  int replacements = 0;
  bool threads = false;  // local ranks are threads of this process
  // Creates this rank's World. Null result: the rank is not needed and exits with kExitOk. Empty
  // function: the World is created from the launcher's job.
  std::function<std::unique_ptr<World>(const WorldOptions&)> join{};
};

// Returns the WorldOptions for a command.
WorldOptions world_options(std::string_view command, const JobFlags& flags);

// Lists the options that are added after this call under `title` in the help.
void section(CLI::App& command, const char* title);

// Adds -N, --hosts, --rails, --transport, --timeout-ms and --rail-gbps; parsing stores their values
// in `flags`.
void add_job_flags(CLI::App& command, JobFlags& flags);

// Returns the number of ranks of a local job: -N, or a default that fits --hosts and the machine's
// cores. Throws Error if -N leaves a host without a rank.
int local_ranks(const JobFlags& flags, int cores);

// Throws UsageError if the launcher's job does not match the flags.
void check_against_job(const JobFlags& flags, std::string_view launcher, const Topology& topology);

// Under a launcher: assembles the job, runs `body` on this rank and returns body's exit code.
// Without a launcher: runs this command line again as local ranks, or calls body on a thread for
// each rank, and returns their exit code. If the job fails, calls `failed` on all ranks or, if
// `failed` is empty, prints to stderr on one rank; the exit code is kExitCritical.
int run_job(std::string_view command, const JobFlags& flags, const std::function<int(World&)>& body,
            const std::function<void(Rank, const Status&)>& failed = {});

}  // namespace weft
