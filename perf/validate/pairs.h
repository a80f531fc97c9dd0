// Measures bandwidth and latency between every two ranks, and judges them.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "coll/api/communicator.h"
#include "perf/validate/verdict.h"

namespace weft {

// One direction of one pair.
struct PairResult {
  Rank from = 0, to = 0;
  std::string link;  // that carried the bytes: "shm", "tcp rail 0", "tcp across rails"
  double latency_us = 0;
  double bandwidth_GBps = 0;
  int rails = 0;         // number of rails in `link`; 0: none, or not always the same ones
  double rail_gbps = 0;  // of these rails together; 0: not known
  std::string from_host = {}, to_host = {};
  std::vector<int> on_rails = {};  // rails whose ports carry the bytes, at both hosts
};

// Returns every pair of n ranks once, in rounds of pairs that share no rank (circle method).
std::vector<std::vector<std::pair<Rank, Rank>>> pair_rounds(int n);

// Whether two ranks share memory. Ranks of one host do not share memory when they run in separate
// containers or as several users: they use the rails.
bool share_memory(const Topology& topology, Rank a, Rank b);
bool hosts_share_memory(const Topology& topology);  // the ranks of each host

// Returns the link of two ranks and its known properties, without measured values. Large messages
// go over the ranks' own rail and, where rails stand in for each other (World::failover()), over
// the ranks' share of the rails that no rank has (WorldOptions::spread is off): "tcp rails 0,1"
// between hosts with two rails and a rank each.
PairResult link_of(const Topology& topology, const std::string& transport, bool failover, Rank a,
                   Rank b);

// Returns the rounds in which the pairs are measured. Pairs of one round share no rank and no port
// of a rail, whose rate they would divide. On one machine, each pair has a round to itself.
std::vector<std::vector<std::pair<Rank, Rank>>> measuring_rounds(const Topology& topology,
                                                                 const std::string& transport,
                                                                 bool failover, bool one_machine);

// The limits for a pair, relative to the usual value of its link. That value is the median, or with
// few ranks the quantile that a single bad rank leaves alone (a third, with three ranks). Where
// hosts are emulated or oversubscribed, pairs share cores, and only gross outliers count.
struct PairLimits {
  double warn_bandwidth, fail_bandwidth;  // fractions of the usual bandwidth, below
  double warn_latency, fail_latency;      // multiples of the usual latency, above
};
inline constexpr PairLimits kRealLimits{0.5, 0.1, 3, 20};
inline constexpr PairLimits kEmulatedLimits{0.1, 0.01, 50, 1000};
inline const PairLimits& limits_for(bool emulated, bool oversubscribed) {
  return emulated || oversubscribed ? kEmulatedLimits : kRealLimits;
}

// Returns the pairs with a direction beyond the limits for a warning; the lower rank comes first.
std::vector<std::pair<Rank, Rank>> out_of_line(const std::vector<PairResult>& results,
                                               const PairLimits& limits);

// Measures all pairs; every rank gets all results. On one machine, pairs out of line are measured
// again, at most twice, and the best result counts: a faulty link stays slow, a pair that waited
// for a core does not. Stops after budget_s; pairs not measured by then are missing from the
// result. Throws JobFailed.
std::vector<PairResult> measure_pairs(World& world, const std::string& transport, double budget_s,
                                      const PairLimits& limits);

// Returns one item per link; one for each host whose port of a rail is slow to, or from, all of two
// or more other hosts; one for each other pair out of line; one for each rail that is slow as a
// whole beside the other rails, relative to known rates; and UNKNOWN for pairs not measured
// (`expected` is the number of all directions).
std::vector<Item> judge_pairs(const std::vector<PairResult>& results, std::size_t expected,
                              const PairLimits& limits);

}  // namespace weft
