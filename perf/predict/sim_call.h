// What `weft sim` is asked, and the job that follows: the call of model_flags.h, and what is slow
// or fails.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "perf/predict/model_flags.h"

namespace weft {

struct SimFlags : ModelFlags {
  std::string timeline;
  std::vector<std::string> slow_rails, slow_hosts, cuts;
  bool equal_shares = false, unknown_leaves = false;
  std::uint64_t seed = 1;
  double delay_us = 0, skew_us = 0, longest_s = 20;
  bool reorder = false, whole = false;
  std::string json;
};

struct SimulatedCall : ModelCall {
  bool whole = false;  // all is simulated, also where one host, rail or few rounds would do
};

// Throws Error naming the flag and its value.
SimulatedCall call_of(const SimFlags& flags);

}  // namespace weft
