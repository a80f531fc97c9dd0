// The options that `weft explain` and `weft sim` share: a collective and a job that need not exist.
#pragma once

#include <string>

#include "coll/schedule/algorithm.h"
#include "coll/types.h"

namespace CLI {
class App;
class Option;
}  // namespace CLI

namespace weft {

// The defaults, as --help shows them; 0 means that the option has no default.
struct ModelFlags {
  std::string collective, bytes = "64M", type = "float", algorithm = "auto";
  int ranks = 8, hosts = 1, rails = 0, root = 0;
  double rail_gbps = 0, rail_us = 0, host_gbps = 0, host_us = 0;
};

// Adds COLLECTIVE, --ranks, --hosts, --rails, --bytes, --type, --algo, --root, --rail-gbps,
// --rail-us, --host-gbps and --host-us. algorithm_about is the help of --algo.
void add_model_flags(CLI::App& command, ModelFlags& flags, const char* algorithm_about);

// These three read the flags. They throw Error naming the flag and its value.
Collective collective_of(const ModelFlags& flags);
DType type_of(const ModelFlags& flags);
Shape shape_of(const ModelFlags& flags, Rank rank);

}  // namespace weft
