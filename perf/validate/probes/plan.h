// Plans rounds within a budget and states what they can detect. Pure.
#pragma once

#include <cstdint>
#include <vector>

#include "perf/validate/probes/fabric.h"
#include "perf/validate/probes/samples.h"

namespace weft::fabric {

struct PlanOptions {
  double budget_s = 60;
  std::uint64_t seed = 1;
  bool all_pairs = false;
  std::vector<Probe> only = {};  // empty: all that fit the budget
  double soak_s = 0;             // > 0: repeat the rate rounds for this long
};

// Fraction of the rate at which kLowLoad flows send, so that queues stay empty.
inline constexpr double kLowPace = 0.2;

// The planned rounds, the omitted probes, and the smallest faults that the samples can show with
// the policy's confidence (smallest_*, set after the run).
struct Plan {
  std::vector<Round> rounds;
  double seconds = 0;               // estimate
  double smallest_loss = 1;         // detectable losses per packet, per port; 1: none
  double smallest_rate_cut = 0;     // detectable loss of rate, given the measured noise; 0: unknown
  double smallest_share = 1;        // detectable fraction of time with a fault; 1: unknown
  std::vector<Probe> left_out;      // for lack of time
  std::vector<Probe> not_here;      // too few hosts or rails, or not supported by the ports
  std::vector<int> measured_paths;  // by rail: directed host pairs of kRate
};

// Plans rate, latency and the other probes in the order of their information per second: reach,
// latency, rate cover (ceil(log2 n) XOR rounds, both directions in turn, then random matchings),
// path MTU, low load, incast, victim, cross-rail, loopback, bisection, all-to-all, entropy. Further
// rate rounds are spread over the run to catch intermittent faults. A round uses a port at most
// once per direction, and has at most `most_flows` flows (0: no limit).
Plan plan_rounds(const std::vector<FleetHost>& hosts, int most_flows, const PlanOptions& options);

}  // namespace weft::fabric
