// A job's own traffic (`--like`): which ranks play it, and how long its calls should take on the
// links that were measured. Everything here is pure; play_traffic.h runs it.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "coll/jobs/traffic.h"
#include "coll/select/cost.h"
#include "perf/validate/probes/fabric.h"
#include "perf/validate/probes/samples.h"
#include "topo/topology.h"

namespace weft::fabric {

// The ranks that there are, on their hosts and rails.
struct Players {
  std::vector<std::vector<Rank>> hosts;
  std::vector<int> rail;  // by rank
  int rails = 1;
};
Players players_of(const Topology& topology);

// The job as the ranks that there are play it. order[column * tp + slot] is the rank of a slot of a
// tensor-parallel group; the columns are numbered as the job's own, dp before pp.
struct FoldedJob {
  int tp = 1, pp = 1, dp = 1;
  bool folded = false;  // the job has more ranks than there are
  std::vector<Rank> order;
};

// Where all ranks of the job are there, they are the first ones, in the order of hosts. Otherwise
// each kind of group keeps its kind and as many ranks as there are: tensor parallelism inside a
// host, data parallelism among neighbours beyond it, pipelines in the widest steps that there are,
// so that stages lie on different hosts.
FoldedJob fold(const TrafficAsked& job, const Players& players);

// The groups of an axis, disjoint and of one size; none where a group would be one rank.
std::vector<std::vector<Rank>> groups_of(const FoldedJob& job, TrafficAxis axis);

// What is to be played: a kind for each axis, collective and size, with nothing measured yet.
JobPlayed to_play(const JobTraffic& traffic, const FoldedJob& job);
// The kind of a part, by its index in JobPlayed::kinds.
std::size_t kind_of(const JobPlayed& played, const TrafficPart& part);

// The port and direction that is slowest at its best, of all ports that rate flows have crossed.
struct SlowestPort {
  Port port;
  bool sends = true;
  double gbps = 0;  // 0: no rate was measured
};
SlowestPort slowest_port(const Samples& samples);
std::string in_short(const SlowestPort& slowest, const std::vector<FleetHost>& hosts);

// Microseconds of a call of `bytes` in each of `groups` at once, by the cost model with `costs`,
// whose rails run at the slowest port's rate (as they were calibrated, where that is 0), shared by
// the ranks that use a rail at the same time.
double predicted_us(Collective collective, std::uint64_t bytes,
                    const std::vector<std::vector<Rank>>& groups, const Players& players,
                    const CostModel& costs, double slowest_gbps);

}  // namespace weft::fabric
