// What the parallel commands (perf, validate, train) share: ranks from a launcher or of their own,
// and one clear end whichever way it comes.
#pragma once

#include <chrono>
#include <functional>
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
  int timeout_ms = 30000;                // unless WEFT_TIMEOUT_MS says otherwise
  const CLI::Option* timeout = nullptr;  // --timeout-ms, which wins over both
  double rail_gbps = 0;                  // 0: WEFT_RAIL_GBPS, else measured
};

// -n, --hosts, --rails, --transport, --timeout-ms, --rail-gbps
void add_job_flags(CLI::App& command, JobFlags& flags);

// Ranks of a local job: what -n says, else a default that fits `hosts` and the machine's cores.
// Throws Error when -n, --hosts and --rails cannot be.
int local_ranks(const JobFlags& flags, int cores);

// Throws UsageError when the job that a launcher started is not what the flags ask for.
void check_against_job(const JobFlags& flags, std::string_view launcher, const Topology& topology);

// Under a launcher: assembles the job and runs `body` on this rank; returns its exit code. By
// itself: runs this command line again as local ranks and returns their exit code. A failure of
// the job goes to `failed` (all ranks) or, without it, to stderr (one rank), and exits critical.
int run_job(std::string_view command, const JobFlags& flags, const std::function<int(World&)>& body,
            const std::function<void(Rank, const Status&)>& failed = {});

}  // namespace weft
