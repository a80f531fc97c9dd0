// The traffic of a training run as a Chakra trace, which `weft replay` and simulators read.
#pragma once

#include <string>

#include "topo/topology.h"

namespace weft::train {

// Reads the trace of a rank that WEFT_TRACE made, and writes its operations to "<path>.<rank>.et":
// one collective or message each, and the time between them as computation. An operation waits for
// those that were over when it began. Throws Error where a file cannot be read or written. Without
// protobuf it does nothing.
void write_chakra_trace(const std::string& path, Rank rank);

// "run.json" of rank 3: "run.3.et"
std::string chakra_file(const std::string& path, Rank rank);

}  // namespace weft::train
