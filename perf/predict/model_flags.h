// The options that `weft explain` and `weft sim` share: a call of a job that need not exist, and
// the machine that it runs on.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "coll/jobs/machine_options.h"
#include "coll/machine.h"
#include "coll/schedule/algorithm.h"
#include "coll/select/cost.h"
#include "coll/types.h"
#include "transport/sim/sim.h"

namespace CLI {
class App;
class Option;
}  // namespace CLI

namespace weft {

// The defaults, as --help shows them; 0 means that the option has none.
struct ModelFlags {
  std::string collective, bytes = "64M", type = "float", algorithm = "auto";
  int ranks = 8, hosts = 1, rails = 0, hosts_per_leaf = 0, root = 0;
  double uplink_gbps = 0;
  std::vector<std::string> slow_ports;
  MachineFlags machine;
};

// Adds COLLECTIVE, --ranks, --hosts, --rails, --hosts-per-leaf, --uplink-gbps, --slow-port,
// --bytes, --type, --algo, --root and the options of the machine. algorithm_about is the help of
// --algo.
void add_model_flags(CLI::App& command, ModelFlags& flags, const char* algorithm_about);

// Refuses the options of add_model_flags() that a run with these flags would ignore. Throws Error.
void refuse_ignored(const CLI::App& command, const ModelFlags& flags);

Collective collective_of(const ModelFlags& flags);

// What is asked, in the terms of the library: what explain predicts is what sim simulates.
struct ModelCall {
  Collective collective;
  DType type;
  Shape shape;
  int rails;            // per host
  std::size_t count;    // elements of the message, or of a block
  std::uint64_t bytes;  // of the whole buffer: those of --bytes that blocks can share
  Machine machine;
  SimFabricOptions fabric;
  CostModel model;
  Bound bound;
};

// The shape is that of `rank`. Throws Error naming the flag and its value.
ModelCall call_of(const ModelFlags& flags, Rank rank);
// Gives rails shares of the message by their rates in the fabric, where these differ.
void weigh_rails(ModelCall& call);
// Fills in model and bound, which follow from shape and fabric. `rails`: of a host, as the bound
// counts them; 0: one for each rank of a host.
void set_model(ModelCall& call, int rails);

// "64 ranks on 8 hosts x 8 rails", "8 ranks on 1 host".
std::string where(const ModelCall& call);
// "": all hosts have as many ranks. Else a line that says how many hosts have how many.
std::string unequal_hosts_in_words(const ModelCall& call);

// "": what is next to the bound is not above 1. Else a sentence that says so, and why.
std::string above_bound_in_words(double of_bound, const char* what);

}  // namespace weft
