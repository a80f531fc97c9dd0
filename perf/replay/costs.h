// The time of a trace's call that runs alone on a fabric: from the engine in virtual time or, for
// large calls, from the cost model. This file depends only on nodes and groups of a trace.
#pragma once

#include <map>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "coll/machine.h"
#include "coll/select/cost.h"
#include "coll/sim/simulate.h"
#include "perf/predict/sim_call.h"
#include "perf/replay/trace.h"
#include "perf/replay/virtual_play.h"
#include "topo/topology.h"

namespace weft::replay {

// The fabric of all ranks of a job: hosts, rails, links, cores.
struct ReplayFabric {
  SimFabricOptions options;
  Machine machine;
  int hosts = 1, rails = 1;
};

// Returns the fabric that the flags of `weft sim` describe, for this many ranks.
ReplayFabric fabric_of_flags(const SimFlags& flags, int ranks);
// Returns the measured fabric of a job, for its first `ranks` ranks.
ReplayFabric fabric_of_job(const Topology& topology, const Machine& machine, int ranks);
// Returns the fabric with rail 0 at half its rate.
ReplayFabric with_half_a_rail(ReplayFabric fabric);

class CallCosts {
 public:
  CallCosts(const JobTrace& trace, ReplayFabric fabric)
      : trace_(trace), fabric_(std::move(fabric)) {}

  CallCost operator()(const TraceNode& node, const std::vector<Rank>& ranks);

  // Returns the busiest port, core or kind of link in the last call of a key; "": unknown.
  const std::string& limiting(const CallKey& key) const;
  int by_model() const { return by_model_; }  // calls that were too large to simulate

 private:
  struct Cost {
    CallCost call;
    std::string limiting;
  };
  // Collective, bytes, type, root, sharing, and (host, rail) of each rank, with hosts renumbered.
  using Kind = std::tuple<int, std::uint64_t, int, int, double, std::vector<std::pair<int, int>>>;

  Cost collective(const TraceNode& node, const Kind& kind, double sharing);
  Cost shift(const TraceNode& node, const std::vector<Rank>& ranks);
  Cost message(std::uint64_t bytes, Rank sender, Rank receiver) const;
  double sharing(int group, const std::vector<Rank>& ranks);

  const JobTrace& trace_;
  const ReplayFabric fabric_;
  std::map<Kind, Cost> known_;
  // Results of sharing(), by group and first rank of a list.
  std::map<std::pair<int, Rank>, double> sharing_;
  std::map<CallKey, std::string> limiting_;
  int by_model_ = 0;
};

}  // namespace weft::replay
