// Set-up of a pair test: its ends, the devices of the ends, and whether the ends' flags agree.
#pragma once

#include <cstddef>
#include <string>

#include "perf/pair/pair_options.h"
#include "topo/topology.h"
#include "transport/job/bootstrap.h"

namespace weft {

// Describes the job of a server or a client. A client first waits for the server to listen, to
// report a wrong host name early. Throws Error if no server listens.
JobSpec client_or_server(const PairOptions& options);

Nic device_named(const std::string& name);  // throws Error
// Returns the rail in the form that the operation uses. Throws Error if the operation cannot use
// the rail.
Nic rail_for(const PairOptions& options, Nic rail);

// Returns the flags that must be the same at both ends.
std::string agreement(const PairOptions& options);
// Returns the flags in which two agreements differ: "-s 64 and 128".
std::string differing(const std::string& a, const std::string& b);

// Returns the message size from which WEFT_FAULT=flip corrupts this rank's messages; SIZE_MAX:
// none. Throws UsageError if WEFT_FAULT requests a fault that pair tests do not support.
std::size_t damage_from(Rank me);

}  // namespace weft
