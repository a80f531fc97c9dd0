// What `weft sim` is asked, and the job that follows: links, cores, failures.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "coll/select/cost.h"
#include "coll/sim/simulate.h"
#include "perf/predict/model_flags.h"

namespace weft {

// What a core is taken to need where nothing is said: for a message at each end, and to reduce or
// copy from memory: measured by weft_bench_core (docs/performance.md).
inline constexpr double kSimCoreUs = 0.2, kSimReduceGBps = 4.5, kSimCopyGBps = 5;

struct SimFlags : ModelFlags {
  double spine_gbps = 0, spine_us = SimFabricOptions{}.spine.latency_us;
  // Below 0: not given. Where only cpu_us is, reductions and copies cost nothing.
  double cpu_us = -1, reduce_GBps = -1, copy_GBps = -1;
  std::string timeline;
  std::vector<std::string> slow_rails, slow_hosts, cuts;
  bool equal_shares = false;
  std::uint64_t seed = 1;
  double delay_us = 0, skew_us = 0, longest_s = 60;
  bool reorder = false, whole = false;
  std::string json;
};

// What is asked, in the terms of the library.
struct SimulatedCall {
  Collective collective;
  DType type;
  Shape shape;
  std::size_t count;    // elements of the message, or of a block
  std::uint64_t bytes;  // of the whole buffer
  SimFabricOptions fabric;
  CostModel model;
  Bound bound;
  bool whole;  // all hosts are simulated, also where one does what all do
};

// Throws Error naming the flag and its value.
SimulatedCall call_of(const SimFlags& flags);

}  // namespace weft
