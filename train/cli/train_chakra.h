// Exports the traffic of a training run as a Chakra trace, for `weft replay` and simulators.
#pragma once

#include <string>

#include "topo/topology.h"

namespace weft::train {

// Reads the rank's trace (WEFT_TRACE), and writes its operations to "<path>.<rank>.et": one
// collective or message per node, and the time between them as computation. An operation depends on
// all operations that had ended when it began. Throws Error if a file cannot be read or written.
// No-op without protobuf.
void write_chakra_trace(const std::string& path, Rank rank);

// Returns "run.3.et" for "run.json" and rank 3.
std::string chakra_file(const std::string& path, Rank rank);

}  // namespace weft::train
