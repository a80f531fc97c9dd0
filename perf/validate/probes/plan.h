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
  std::vector<Probe> only = {};  // probes to run; empty: all probes that fit the budget
  double soak_s = 0;             // > 0: time for which the rate rounds are repeated
};

// Fraction of the rate at which kLowLoad flows send, so that queues stay empty.
inline constexpr double kLowPace = 0.2;

// The planned rounds, the omitted probes, and the smallest faults that the samples can show with
// the policy's confidence (smallest_*, set after the run).
struct Plan {
  std::vector<Round> rounds;
  double seconds = 0;  // estimated duration
  // Detectable losses per packet, per port; 1: no loss is detectable.
  double smallest_loss = 1;
  double smallest_rate_cut = 0;  // detectable loss of rate, given the measured noise; 0: unknown
  double smallest_share = 1;     // detectable fraction of time with a fault; 1: unknown
  std::vector<Probe> left_out;   // probes omitted for lack of time
  // Probes that need more hosts or rails, or that the ports do not support.
  std::vector<Probe> not_here;
  std::vector<int> measured_paths;  // number of directed host pairs of kRate, by rail
};

// Plans rate, latency and the other probes in the order of their information per second: reach,
// latency, rate cover (ceil(log2 n) XOR rounds, both directions in turn, then random matchings),
// path MTU, low load, incast, victim, cross-rail, loopback, bisection, all-to-all, entropy. Further
// rate rounds are spread over the run to catch intermittent faults. A round uses a port at most
// once per direction, and has at most `most_flows` flows (0: no limit).
Plan plan_rounds(const std::vector<FleetHost>& hosts, int most_flows, const PlanOptions& options);

}  // namespace weft::fabric
