// The request to `weft sim`, and the simulated job: the call of model_flags.h, with slow and
// failing parts.
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
  bool whole = false;  // simulate everything, even if one host, one rail or a few rounds would
                       // represent the rest
};

// Throws Error naming the flag and its value.
SimulatedCall call_of(const SimFlags& flags);

}  // namespace weft
