// Bandwidth and latency between every two ranks, and what to think of them.
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
  std::string link;  // what the bytes went over: "shm", "tcp rail 0", "tcp across rails"
  double latency_us = 0;
  double bandwidth_GBps = 0;
  int rails = 0;         // how many of them are `link`; 0: none, or not always the same
  double rail_gbps = 0;  // the rate of them together; 0: not known
  std::string from_host = {}, to_host = {};
  std::vector<int> on_rails = {};  // whose ports its bytes go through, at both hosts
};

// Every pair of n ranks once, in rounds of pairs that share no rank (circle method).
std::vector<std::vector<std::pair<Rank, Rank>>> pair_rounds(int n);

// Ranks of one host in containers of their own, or of several users, do not: they use the rails.
bool share_memory(const Topology& topology, Rank a, Rank b);
bool hosts_share_memory(const Topology& topology);  // the ranks of each host

// The link of two ranks and what is known of it, nothing measured. Large messages keep to the rail
// of the ranks and, where rails stand in for each other (World::failover()), their share of those
// that no rank has (WorldOptions::spread is off): "tcp rails 0,1" between hosts with two rails and
// a rank each.
PairResult link_of(const Topology& topology, const std::string& transport, bool failover, Rank a,
                   Rank b);

// The rounds in which they are measured. Pairs of one share no rank, and no port of a rail, of
// whose rate each would get a part. On one machine, which all share, each pair has a round to
// itself.
std::vector<std::vector<std::pair<Rank, Rank>>> measuring_rounds(const Topology& topology,
                                                                 const std::string& transport,
                                                                 bool failover, bool one_machine);

// A pair is judged against what is usual of its link: the median, but of few ranks what a single
// bad one leaves alone (of three, a third). Where hosts are emulated, or have fewer cores than
// ranks, pairs share cores, and only gross outliers mean something.
struct PairLimits {
  double warn_bandwidth, fail_bandwidth;  // fractions of what is usual, below
  double warn_latency, fail_latency;      // multiples of what is usual, above
};
inline constexpr PairLimits kRealLimits{0.5, 0.1, 3, 20};
inline constexpr PairLimits kEmulatedLimits{0.1, 0.01, 50, 1000};
inline const PairLimits& limits_for(bool emulated, bool oversubscribed) {
  return emulated || oversubscribed ? kEmulatedLimits : kRealLimits;
}

// The pairs of which a direction is worse than the limits for a warning; the lower rank first.
std::vector<std::pair<Rank, Rank>> out_of_line(const std::vector<PairResult>& results,
                                               const PairLimits& limits);

// Measures all pairs; every rank gets all results. On one machine, who is out of line again, at
// most twice: the best counts, as what is wrong stays so, and what waited for a core does not.
// Stops after budget_s: what is missing was not measured. Throws JobFailed.
std::vector<PairResult> measure_pairs(World& world, const std::string& transport, double budget_s,
                                      const PairLimits& limits);

// One item per link; one for each host whose port of a rail is slow to, or from, all of two or more
// others, and one for each other pair that is out of line; and one per rail that is slow as a whole
// next to the others, at their rates where these are known; UNKNOWN for pairs not measured
// (`expected` directions in all).
std::vector<Item> judge_pairs(const std::vector<PairResult>& results, std::size_t expected,
                              const PairLimits& limits);

}  // namespace weft
