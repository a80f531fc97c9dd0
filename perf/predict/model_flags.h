// The options that `weft explain` and `weft sim` share: a collective and a job that need not exist.
#pragma once

#include <string>

#include "coll/schedule/algorithm.h"
#include "coll/select/cost.h"
#include "coll/types.h"
#include "transport/sim/sim.h"

namespace CLI {
class App;
class Option;
}  // namespace CLI

namespace weft {

// The defaults, as --help shows them; 0 means that the option has none. The links are those of the
// simulated fabric.
struct ModelFlags {
  std::string collective, bytes = "64M", type = "float", algorithm = "auto", wire = "rdma";
  int ranks = 8, hosts = 1, rails = 0, root = 0;
  double rail_gbps = 0;  // 0: WEFT_RAIL_GBPS, else the simulated fabric's
  double rail_us = SimFabricOptions{}.rail.latency_us;
  double host_gbps = SimFabricOptions{}.host.gbps, host_us = SimFabricOptions{}.host.latency_us;
};

// Adds COLLECTIVE, --ranks, --hosts, --rails, --bytes, --type, --algo, --root, --rail-gbps,
// --rail-us, --host-gbps, --host-us and --wire. algorithm_about is the help of --algo.
void add_model_flags(CLI::App& command, ModelFlags& flags, const char* algorithm_about);

// Refuses the options of add_model_flags() that a run with these flags would ignore. Throws Error.
void refuse_ignored(const CLI::App& command, const ModelFlags& flags);

// These read the flags. They throw Error naming the flag and its value.
Collective collective_of(const ModelFlags& flags);
DType type_of(const ModelFlags& flags);
Shape shape_of(const ModelFlags& flags, Rank rank);
SimLink rail_of(const ModelFlags& flags);
SimLink host_link_of(const ModelFlags& flags);
double payload_share_of(const ModelFlags& flags);
CostModel model_of(const ModelFlags& flags);  // with the cost model's own cores

}  // namespace weft
