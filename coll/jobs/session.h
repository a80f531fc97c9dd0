// Shared by the parallel commands (perf, validate, train): a launcher or the command itself starts
// the ranks, and a failed job ends with one message and one exit code.
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
  int timeout_ms = 30000;                // unless WEFT_TIMEOUT_MS is set
  const CLI::Option* timeout = nullptr;  // --timeout-ms, which overrides WEFT_TIMEOUT_MS
  double rail_gbps = 0;                  // Gb/s; 0: WEFT_RAIL_GBPS, else measured
  bool outlives_killed = false;          // local ranks continue if one is killed
  int replacements = 0;  // with that, local ranks that are started again (LaunchOptions)
  bool threads = false;  // local ranks are threads of this process
  // Makes this rank's World; null: the rank is not needed, and its code is kExitOk. Empty: the
  // World is the launcher's job.
  std::function<std::unique_ptr<World>(const WorldOptions&)> join{};
};

// The options of a command's Worlds.
WorldOptions world_options(std::string_view command, const JobFlags& flags);

// Puts the options that are added after this call under the title in the help.
void section(CLI::App& command, const char* title);

// Adds -N, --hosts, --rails, --transport, --timeout-ms and --rail-gbps; parsing writes to `flags`.
void add_job_flags(CLI::App& command, JobFlags& flags);

// The ranks of a local job: -N, else a default that fits --hosts and the machine's cores. Throws
// Error if -N leaves a host without a rank.
int local_ranks(const JobFlags& flags, int cores);

// Throws UsageError if the launcher's job does not match the flags.
void check_against_job(const JobFlags& flags, std::string_view launcher, const Topology& topology);

// Under a launcher: assembles the job, runs `body` on this rank and returns body's exit code.
// Otherwise: runs this command line again as local ranks, or calls body on a thread for each rank,
// and returns their exit code. A failure of
// the job goes to `failed` (on all ranks) or else to stderr (on one rank); the code is critical.
int run_job(std::string_view command, const JobFlags& flags, const std::function<int(World&)>& body,
            const std::function<void(Rank, const Status&)>& failed = {});

}  // namespace weft
