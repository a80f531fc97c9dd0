// Before a pair test begins: who the ends are, on which device, and whether their flags agree.
#pragma once

#include <cstddef>
#include <string>

#include "perf/pair/pair_options.h"
#include "topo/topology.h"
#include "transport/job/bootstrap.h"

namespace weft {

// A server listens; a client waits for that first, so that a wrong name is told in time. Throws
// Error where nobody listens.
JobSpec client_or_server(const PairOptions& options);

Nic device_named(const std::string& name);  // throws Error
// The rail as the operation uses it. Throws Error where it cannot.
Nic rail_for(const PairOptions& options, Nic rail);

// What must be the same at both ends; and the flags in which two of these differ: "-s 64 and 128".
std::string agreement(const PairOptions& options);
std::string differing(const std::string& a, const std::string& b);

// From how many bytes on WEFT_FAULT=flip damages the messages of this rank; SIZE_MAX: none. Throws
// UsageError where it asks for what pairs do not know.
std::size_t damage_from(Rank me);

}  // namespace weft
