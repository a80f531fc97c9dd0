// The common options of `weft explain` and `weft sim`: a call of a hypothetical job, and the job's
// machine.
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

// The values of the options. Defaults are the defaults that --help shows; 0: the option has no
// default.
struct ModelFlags {
  std::string collective, bytes = "64M", type = "float", algorithm = "auto";
  int ranks = 8, hosts = 1, rails = 0, hosts_per_leaf = 0, root = 0;
  double uplink_gbps = 0;
  std::vector<std::string> slow_ports;
  MachineFlags machine;
};

// Adds COLLECTIVE, --ranks, --hosts, --rails, --hosts-per-leaf, --uplink-gbps, --slow-port,
// --bytes, --type, --algo, --root and the options of the machine. `algorithm_about` is the help
// text of --algo.
void add_model_flags(CLI::App& command, ModelFlags& flags, const char* algorithm_about);

// Throws Error for options of add_model_flags() that a run with these flags would ignore.
void refuse_ignored(const CLI::App& command, const ModelFlags& flags);

Collective collective_of(const ModelFlags& flags);

// The request in the library's terms: explain predicts it, sim simulates it.
struct ModelCall {
  Collective collective;
  DType type;
  Shape shape;
  int rails;            // number of rails per host
  std::size_t count;    // elements of the message, or of a block
  std::uint64_t bytes;  // size of the whole buffer: --bytes, rounded down to whole blocks
  Machine machine;
  SimFabricOptions fabric;
  CostModel model;
  Bound bound;
};

// Returns the call of the flags, with rank `rank` in its shape. Throws Error naming the flag and
// its value.
ModelCall call_of(const ModelFlags& flags, Rank rank);
// Weights the rails by their rates in the fabric if the rates differ.
void weigh_rails(ModelCall& call);
// Sets model and bound from shape and fabric. `rails`: number of rails per host, for the
// bound; 0: one rail per rank of a host.
void set_model(ModelCall& call, int rails);

// "64 ranks on 8 hosts x 8 rails", "8 ranks on 1 host".
std::string where(const ModelCall& call);
// Returns "" if all hosts have the same number of ranks; otherwise a line such as "1 host has 8
// ranks, 2 hosts have 4 ranks".
std::string unequal_hosts_in_words(const ModelCall& call);

// Returns "" if of_bound is not above 1; otherwise a sentence with the reason `what`.
std::string above_bound_in_words(double of_bound, const char* what);

}  // namespace weft
