// The command-line options of predictions: a machine, and changes to its parameters.
#pragma once

#include <string>

#include "coll/machine.h"

namespace CLI {
class App;
}  // namespace CLI

namespace weft {

// The parameters of a machine that a command's options can change.
enum class MachineParts {
  kAll,
  kButRailRate,  // for a command that already has --rail-gbps
  kLinks,        // for a command that ignores the spine, reductions and copies
};

// Values below 0 and empty values leave the machine's parameter unchanged.
struct MachineFlags {
  std::string machine = kDefaultMachine, wire;
  double rail_gbps = -1, rail_us = -1, host_gbps = -1, host_us = -1, spine_gbps = -1, spine_us = -1;
  double cpu_us = -1, reduce_GBps = -1, copy_GBps = -1;
};

// Adds --machine, --rail-gbps, --rail-us, --host-gbps, --host-us, --spine-gbps, --spine-us, --wire,
// --cpu-us, --reduce-gbs and --copy-gbs, or the subset for `parts`.
void add_machine_options(CLI::App& command, MachineFlags& flags,
                         MachineParts parts = MachineParts::kAll);

// Returns the machine that the flags describe; the rate of a rail may also come from
// WEFT_RAIL_GBPS. For "this", measures the cores, which takes 0.1 s. Throws Error with the option
// and its value.
Machine machine_of(const MachineFlags& flags);

}  // namespace weft
