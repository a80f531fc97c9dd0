// Plans rounds within a budget, and says what such rounds can see. Pure.
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
  std::vector<Probe> only = {};  // empty: all that fit
  double soak_s = 0;             // > 0: repeat the rate rounds for so long
};

// Share of the rate that flows of kLowLoad send: queues stay empty.
inline constexpr double kLowPace = 0.2;

// What the plan does and leaves out, and what its samples could show with the policy's confidence
// (smallest_*, which the conductor fills in).
struct Plan {
  std::vector<Round> rounds;
  double seconds = 0;               // estimate
  double smallest_loss = 1;         // losses per packet that would be named, per port; 1: none
  double smallest_rate_cut = 0;     // share of the rate, of the noise that was met; 0: not known
  double smallest_share = 1;        // of the time in which a port is bad; 1: not known
  std::vector<Probe> left_out;      // for want of time
  std::vector<Probe> not_here;      // the fleet has too few hosts or rails, or the ports cannot
  std::vector<int> measured_paths;  // per rail: directed host pairs of kRate
};

// Rate, latency and the other probes in the order of what they tell per second: reach, latency,
// rate cover (ceil(log2 n) XOR rounds, both directions one after the other, then random matchings),
// path MTU, low load, incast, victim, cross-rail, loopback, bisection, all-to-all, entropy. Further
// rate rounds are spread between all of these, for what is bad now and then. Rounds
// use a port at most once per direction, and at most fabric.most_flows() flows.
Plan plan_rounds(const std::vector<FleetHost>& hosts, int most_flows, const PlanOptions& options);

}  // namespace weft::fabric
